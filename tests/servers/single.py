"""The single server, as its clients meet it.

usage: single.py BUILD [TEST...]
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

from cluster import (PATIENCE, Server, Story, Stream, at_once, call_of, plain, wait_for)

BUILD = os.path.abspath(sys.argv.pop(1))
PROGRAM = os.path.join(BUILD, "gravel-specimen")
# Nanoseconds in each layer, so that an answer is under way when its first piece has come: for seconds, in which it is
# paused, or for the better part of a minute, in which its server is killed.
SLOW, ENDLESS = ("--hold", 100_000_000), ("--hold", 1_000_000_000)


class Shared(unittest.TestCase):
    """Tests that leave the server as they found it use one for all."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(BUILD, "serve", "--repair", "--max-messages", 64)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def tearDown(self):
        self.server.wait_empty()

    # ---- Answers ----

    def test_small_questions(self):
        self.assertEqual(self.server.get_json("/health"), (200, {"status": "healthy"}))
        self.assertEqual(self.server.get_json("/ping"), (200, {"status": "alive"}))
        status, models = self.server.get_json("/v1/models")
        self.assertEqual((status, [model["id"] for model in models["data"]]), (200, ["gravel-specimen"]))
        status, headers, body = self.server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn("text/plain", headers["Content-Type"])
        self.assertRegex(body.decode(), r"\ngravel_specimen_engine_free_pages [1-9]")
        self.assertEqual(self.server.request("HEAD", "/ping")[2], b"")

    def test_health_generates_a_token(self):
        def tokens():
            text = self.server.request("GET", "/metrics")[2].decode()
            return int(re.search(r"^gravel_specimen_engine_tokens_total (\d+)$", text, re.MULTILINE).group(1))

        before = tokens()
        self.server.request("GET", "/health")
        self.assertGreater(tokens(), before)

    def test_the_right_call_in_every_round(self):
        story = Story(1)
        for _ in range(4):
            status, answer = self.server.chat(story.ask())
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            self.assertEqual(choice["finish_reason"], "tool_calls")
            self.assertIsNone(choice["message"]["content"])
            call = call_of(answer)
            self.assertTrue(story.is_right(call), (call, story.wanted))
            story.hear(call)
            self.assertEqual(answer["usage"]["total_tokens"],
                             answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"])

    def test_streamed_and_whole_answers_are_the_same(self):
        for body in (Story(2).ask(), plain()):
            _, whole = self.server.chat(body)
            stream = Stream(self.server, dict(body, stream_options={"include_usage": True}))
            self.assertEqual(stream.open(), 200)
            self.assertTrue(stream.headers["content-type"].startswith("text/event-stream"))
            answer = stream.answer()
            stream.close()
            self.assertTrue(answer.done)
            self.assertIsNone(answer.error)
            self.assertEqual(answer.usage, whole["usage"])
            choice = whole["choices"][0]
            self.assertEqual(answer.finish_reason, choice["finish_reason"])
            self.assertEqual(answer.content, choice["message"]["content"] or "")
            calls = choice["message"].get("tool_calls", [])
            self.assertEqual([(c["name"], c["arguments"]) for c in answer.calls],
                             [(c["function"]["name"], c["function"]["arguments"]) for c in calls])

    def test_without_usage_there_is_none(self):
        stream = Stream(self.server, plain())
        self.assertIsNone(stream.answer().usage)
        stream.close()

    def test_max_tokens(self):
        for key in ("max_tokens", "max_completion_tokens"):
            body = Story(3).ask()
            del body["max_tokens"]
            _, answer = self.server.chat(dict(body, **{key: 3}))
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
            self.assertEqual(answer["usage"]["completion_tokens"], 3)
            self.assertNotIn("tool_calls", answer["choices"][0]["message"])

    def test_stop(self):
        story = Story(4)
        body = story.ask()
        del body["tools"]
        # Asked to call, but read as text: the call's markup is the content, up to the stop.
        _, whole = self.server.chat(body)
        text = whole["choices"][0]["message"]["content"]
        self.assertGreater(len(text), 1)
        stop = text[len(text) // 2:][:3]
        _, cut = self.server.chat(dict(body, stop=[stop]))
        self.assertEqual(cut["choices"][0]["message"]["content"], text[:text.index(stop)])
        self.assertEqual(cut["choices"][0]["finish_reason"], "stop")
        self.assertLessEqual(cut["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])

    def test_tool_choice(self):
        story = Story(5)
        body = story.ask()
        _, answer = self.server.chat(dict(body, tool_choice="none"))
        self.assertNotIn("tool_calls", answer["choices"][0]["message"])
        for choice in ("required", {"type": "function", "function": {"name": story.wanted[0]}}):
            _, answer = self.server.chat(dict(body, tool_choice=choice))
            self.assertTrue(story.is_right(call_of(answer)))
        # A call of another function than the named one is dropped, as one of an unknown function is.
        other = "seal" if story.wanted[0] != "seal" else "rent"
        for changed in (dict(body, tool_choice={"type": "function", "function": {"name": other}}),
                        dict(body, tools=[tool for tool in body["tools"] if tool["function"]["name"] == other])):
            _, answer = self.server.chat(changed)
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            self.assertNotIn("tool_calls", answer["choices"][0]["message"])

    def test_many_at_once_are_as_right_as_one(self):
        def session(index):
            story = Story(100 + index)
            for turn in range(2):
                body = story.ask()
                if (index + turn) % 2:
                    stream = Stream(self.server, body)
                    answer = stream.answer()
                    stream.close()
                    self.assertTrue(answer.done, answer.error)
                    call, = answer.calls
                else:
                    status, answer = self.server.chat(body)
                    self.assertEqual(status, 200, answer)
                    call = call_of(answer)
                self.assertTrue(story.is_right(call), (call, story.wanted))
                story.hear(call)

        at_once(24, session)

    # ---- Refusals ----

    def refused(self, status, body, code=None, path="/v1/chat/completions", method="POST"):
        got, headers, answer = self.server.request(method, path, body)
        self.assertEqual(got, status, answer)
        self.assertEqual(headers["Content-Type"], "application/json")
        error = json.loads(answer)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertTrue(error["message"])
        if code:
            self.assertEqual(error["code"], code)
        return error

    def test_bad_requests(self):
        self.refused(400, "{", "invalid_json")
        self.refused(400, b"\xff\xfe\x00", "invalid_json")
        self.refused(400, "[" * 100_000, "invalid_json")
        self.refused(400, {"model": "gravel-specimen"}, "invalid_value")
        self.refused(400, plain(n=2))
        self.refused(404, dict(plain(), model="gpt-4"), "model_not_found")
        self.refused(400, plain("mill " * 50_000), "context_length_exceeded")
        self.refused(400, dict(plain(), messages=[{"role": "user", "content": "x"}] * 65), "too_many_messages")
        self.refused(413, plain("x" * (1 << 20)), "request_too_large")
        self.refused(404, None, "not_found", "/v1/nothing", "GET")
        self.refused(405, None, "method_not_allowed", "/v1/chat/completions", "GET")
        self.refused(405, "{}", "method_not_allowed", "/health", "POST")
        self.refused(404, None, "not_found", "/rooms/1", "GET")

    def test_a_broken_call_in_the_history(self):
        story = Story(6)
        story.ask()
        story.hear({"id": "c", "name": "unlock", "arguments": '{"who": "Mi'})
        self.refused(400, story.ask(), "invalid_value")

    def test_malformed_http_and_abandoned_connections(self):
        for text in (b"", b"\r\n", b"GET", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{",
                     b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"\x00" * 5000,
                     b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000):
            with socket.create_connection(("127.0.0.1", self.server.port)) as client:
                try:
                    client.sendall(text)
                except OSError:
                    pass  # the server has seen enough
        self.assertEqual(self.server.request("GET", "/ping")[0], 200)


class Own(unittest.TestCase):
    """For tests that need a server of their own."""

    def start(self, *options):
        server = Server(BUILD, "serve", "--repair", *options)
        self.addCleanup(server.close)
        return server

    def stream(self, server, seed=1, **more):
        stream = Stream(server, dict(Story(seed).ask(), **more))
        self.addCleanup(stream.close)
        return stream


class Disturbed(Own):
    """Too many clients, and clients that misbehave."""

    def test_too_many_requests(self):
        server = self.start("--max-requests", 2)
        server.pause()
        running = [self.stream(server, seed) for seed in range(2)]
        wait_for(lambda: server.pages()["taken"] == 2, "two requests")
        status, headers, body = server.request("POST", "/v1/chat/completions", Story(3).ask())
        self.assertEqual((status, json.loads(body)["error"]["code"]), (429, "too_many_requests"))
        self.assertIn("Retry-After", headers)
        server.resume()
        # A busy server is healthy all the same.
        self.assertEqual(server.request("GET", "/health")[0], 200)
        for stream in running:
            self.assertTrue(stream.answer().done)
        server.wait_empty()
        self.assertEqual(server.chat(Story(3).ask())[0], 200)

    def test_clients_that_go_away(self):
        server = self.start("--batch", 2, "--rows", 2, *SLOW)
        clients = [self.stream(server, seed) for seed in range(2)]
        for client in clients:
            client.first_token()
        server.pause()
        # These two wait in the engine's queue; one of them would not be streamed.
        clients.append(self.stream(server, 3))
        with socket.create_connection(("127.0.0.1", server.port)) as waiting:
            text = json.dumps(Story(4).ask()).encode()
            waiting.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(text) +
                            text)
            wait_for(lambda: server.pages()["taken"] == 4, "four requests")
        for client in clients:
            client.close()
        wait_for(lambda: b"http_clients_gone_total 4\n" in server.request("GET", "/metrics")[2], "clients to be missed")
        server.resume()
        server.wait_empty()
        self.assertIn(b"chat_cancelled_total 4\n", server.request("GET", "/metrics")[2])

    def test_a_slow_reader_holds_up_nobody(self):
        server = self.start()
        slow = [Stream(server, plain(), receive_buffer=1024) for _ in range(4)]
        for stream in slow:
            self.addCleanup(stream.close)
        story = Story(1)
        self.assertTrue(story.is_right(call_of(server.chat(story.ask())[1])))
        for stream in slow:
            self.assertTrue(stream.answer().done)
        server.wait_empty()

    def test_many_connections(self):
        server = self.start()
        clients = []
        for _ in range(600):
            clients.append(socket.create_connection(("127.0.0.1", server.port)))
        story = Story(1)
        self.assertTrue(story.is_right(call_of(server.chat(story.ask())[1])))
        for client in clients:
            client.close()

    def test_requests_that_never_come_whole(self):
        server = self.start("--request-timeout", 2)
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(20)]
        for client in clients:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        for client in clients:
            self.assertEqual(client.recv(100), b"")
            client.close()
        self.assertEqual(server.request("GET", "/health")[0], 200)


class Shutdown(Own):
    """Ends, asked for or not."""

    def test_sigterm_finishes_what_runs(self):
        server = self.start("--batch", 2, *SLOW)
        streams = [self.stream(server, 0)]
        streams[0].first_token()
        server.pause()
        streams += [self.stream(server, seed) for seed in range(1, 4)]
        wait_for(lambda: server.pages()["taken"] == 4, "four requests")
        server.terminate()
        wait_for(lambda: "requests are running" in server.output(), "the shutdown")
        server.resume()
        answers = [stream.answer() for stream in streams]
        self.assertTrue(all(answer.done for answer in answers))
        self.assertEqual(server.wait(), 0)

    def test_while_shutting_down_nothing_new_is_taken(self):
        server = self.start(*SLOW)
        stream = self.stream(server)
        stream.first_token()
        server.pause()
        server.terminate()
        wait_for(lambda: "shutting down" in server.output(), "the shutdown")
        self.assertEqual(server.request("GET", "/health")[0], 503)
        status, _, body = server.request("POST", "/v1/chat/completions", plain())
        self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "shutting_down"))
        server.resume()
        self.assertTrue(stream.answer().done)
        self.assertEqual(server.wait(), 0)

    def cut(self, server, end):
        running = self.stream(server, 1)
        running.first_token()
        server.pause()
        waiting = self.stream(server, 2)
        wait_for(lambda: server.pages()["taken"] == 2, "two requests")
        end()
        answer = running.answer()
        self.assertFalse(answer.done)
        self.assertIsNone(answer.finish_reason)
        self.assertEqual(answer.error["code"], "shutting_down")
        self.assertEqual(waiting.open(), 503)
        self.assertEqual(server.wait(), 1)
        self.assertIn("2 requests could not be finished", server.output())

    def test_sigterm_without_grace_says_so_to_clients(self):
        server = self.start("--grace", 0, "--batch", 1, "--rows", 1, *SLOW)
        self.cut(server, server.terminate)

    def test_a_second_sigterm_means_now(self):
        server = self.start("--batch", 1, "--rows", 1, *SLOW)

        def end():
            server.terminate()
            wait_for(lambda: "shutting down" in server.output(), "the shutdown")
            server.terminate()

        self.cut(server, end)

    def test_sigint_ends_it_too(self):
        server = self.start()
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)

    def test_killed_in_mid_stream_the_client_sees_a_broken_stream(self):
        server = self.start(*ENDLESS)
        stream = self.stream(server)
        stream.first_token()
        server.kill()
        with self.assertRaises(ConnectionError):
            stream.answer()


class CommandLine(Own):
    def run_program(self, *arguments):
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "soft"))
        result = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=PATIENCE, env=environment)
        return result.returncode, result.stdout + result.stderr

    def test_wrong_usage(self):
        for arguments, words in ((("serve", "--port", "70000"), "from 0 to 65535"),
                                 (("serve", "--nonsense"), "no option --nonsense"),
                                 (("serve", "extra"), '"extra"'),
                                 (("serve", "--host", "localhost"), "numeric"),
                                 (("serve", "--fault", "nonsense"), "faults"),
                                 (("serve", "--port"), "needs an argument"),
                                 (("serve", "--prefill", "http://127.0.0.1:1"), "no option --prefill"),
                                 (("router",), "--open"),
                                 (("router", "--prefill", "ftp://x", "--decode", "http://127.0.0.1:1"), "base URL"),
                                 (("router", "--batch", "2"), "no option --batch")):
            code, text = self.run_program(*arguments)
            self.assertEqual(code, 2, (arguments, text))
            self.assertIn(words, text)

    def test_help(self):
        for command in ("serve", "prefill", "decode", "router"):
            code, text = self.run_program(command, "--help")
            self.assertEqual(code, 0)
            self.assertIn("--port-file", text)

    def test_a_port_that_is_taken(self):
        server = self.start()
        code, text = self.run_program("serve", "--port", str(server.port))
        self.assertEqual(code, 3)
        self.assertIn("cannot be listened on", text)

    def test_a_port_file_that_cannot_be_written(self):
        code, text = self.run_program("router", "--open", "--port", "0", "--port-file", "/nonexistent/port")
        self.assertEqual(code, 3)
        self.assertIn("could not be written", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
