"""A disaggregated pair behind its router, as its clients meet it, and what happens when parts of it die.

usage: pair.py BUILD [TEST...]
"""

import http.server
import json
import os
import socket
import sys
import threading
import time
import unittest

from cluster import Server, Story, Stream, at_once, call_of, plain, wait_for

BUILD = os.path.abspath(sys.argv.pop(1))
# Nanoseconds in each layer, so that an answer is under way when its first piece has come: for seconds, or for the better
# part of a minute. What must not end before something else happened waits for a server that is paused.
SLOW, ENDLESS = ("--hold", 100_000_000), ("--hold", 1_000_000_000)
PLAIN = ("--repair", "--batch", 4, "--buckets", 4)  # one graph to capture, so that a server starts soon


class Pair(unittest.TestCase):
    """A router that workers announce themselves to, and the workers that a test asks for."""

    def router(self, *options):
        router = Server(BUILD, "router", "--check-interval", 100, *options)
        self.addCleanup(router.close)
        return router

    def worker(self, kind, router, *options):
        more = ("--router", router.url) if router else ()
        server = Server(BUILD, kind, *PLAIN, *more, *options)
        self.addCleanup(server.close)
        return server

    def start(self, prefill=(), decode=(), router=()):
        """A router, one prefill and one decode server, all ready."""
        self.open_router = self.router("--open", *router)
        self.prefill = self.worker("prefill", self.open_router, *prefill)
        self.decode = self.worker("decode", self.open_router, *decode)
        self.wait_ready(self.open_router)
        return self.open_router

    def wait_ready(self, router, prefill=1, decode=1):
        def ready():
            status, counts = router.get_json("/readiness")
            return (status, counts) == (200, {"ready": True, "prefill_up": prefill, "decode_up": decode})

        wait_for(ready, "the pair to be ready")

    def wait_down(self, router, **counts):
        wait_for(lambda: counts.items() <= router.get_json("/readiness")[1].items(), f"{counts}")

    def wait_state(self, router, **wanted):
        wait_for(lambda: wanted.items() <= router.get_json("/debug/state")[1].items(),
                 f"{wanted}: {router.get_json('/debug/state')}")

    def stream(self, server, seed=1, **more):
        stream = Stream(server, dict(Story(seed).ask(), **more))
        self.addCleanup(stream.close)
        return stream

    def assert_right(self, server, seed=1):
        story = Story(seed)
        status, answer = server.chat(story.ask())
        self.assertEqual(status, 200, answer)
        self.assertTrue(story.is_right(call_of(answer)), (answer, story.wanted))

    def assert_failed(self, stream, *codes):
        """The stream ended in an error event, and nothing in it looks like an end."""
        answer = stream.answer()
        self.assertIsNotNone(answer.error, answer.__dict__)
        self.assertFalse(answer.done)
        self.assertIsNone(answer.finish_reason)
        self.assertIn(answer.error["code"], codes)


class Together(Pair):
    """All parts live; the tests share them."""

    @classmethod
    def setUpClass(cls):
        cls.shared_router = Server(BUILD, "router", "--check-interval", 100, "--open")
        cls.prefill = Server(BUILD, "prefill", "--repair", "--router", cls.shared_router.url)
        cls.decode = Server(BUILD, "decode", "--repair", "--router", cls.shared_router.url)

    @classmethod
    def tearDownClass(cls):
        for server in (cls.shared_router, cls.prefill, cls.decode):
            server.close()

    def setUp(self):
        self.wait_ready(self.shared_router)

    def tearDown(self):
        for worker in (self.prefill, self.decode):
            worker.wait_empty()
        self.wait_state(self.shared_router, relays=0)

    def test_the_right_call_in_every_round_of_many_sessions(self):
        router = self.shared_router

        def session(index):
            story = Story(200 + index)
            for turn in range(2):
                body = story.ask()
                if (index + turn) % 2:
                    stream = Stream(router, dict(body, stream_options={"include_usage": True}))
                    answer = stream.answer()
                    stream.close()
                    self.assertTrue(answer.done, answer.error)
                    self.assertGreater(answer.usage["completion_tokens"], 5)
                    call, = answer.calls
                else:
                    status, answer = router.chat(body)
                    self.assertEqual(status, 200, answer)
                    call = call_of(answer)
                self.assertTrue(story.is_right(call), (call, story.wanted))
                story.hear(call)

        at_once(16, session)
        self.assertEqual(router.get_json("/debug/state")[1]["failed"], 0)
        # It was the decode server that decoded.
        tokens = [int(worker.request("GET", "/metrics")[2].split(b"\ngravel_specimen_engine_steps_total ")[1].split()[0])
                  for worker in (self.prefill, self.decode)]
        self.assertLess(tokens[0], tokens[1])

    def test_a_pair_answers_as_a_single_server_does(self):
        router = self.shared_router
        single = Server(BUILD, "serve", "--repair")
        self.addCleanup(single.close)
        for body in (plain(), Story(2).ask(), dict(Story(3).ask(), max_tokens=1), dict(plain(), max_tokens=1),
                     dict(Story(4).ask(), tool_choice="none", stop=["parameter"]), plain("mill " * 600),
                     dict(plain(), model="gpt-4"), plain("mill " * 50_000), dict(plain(), n=2)):
            answers = []
            for server in (single, router):
                status, answer = server.chat(body)
                for changing in ("id", "created"):
                    answer.pop(changing, None)
                for choice in answer.get("choices", ()):
                    for call in choice["message"].get("tool_calls", ()):
                        call.pop("id")
                answers.append((status, answer))
            self.assertEqual(*answers)

    def test_small_questions_to_the_router(self):
        router = self.shared_router
        self.assertEqual(router.get_json("/health")[0], 200)
        self.assertEqual([model["id"] for model in router.get_json("/v1/models")[1]["data"]], ["gravel-specimen"])
        workers = router.get_json("/workers")[1]["workers"]
        self.assertEqual({(worker["kind"], worker["url"], worker["state"]) for worker in workers},
                         {("prefill", self.prefill.url, "up"), ("decode", self.decode.url, "up")})
        self.assertIn(b'worker_up{kind="decode"', router.request("GET", "/metrics")[2])
        for body, status in (("{", 400), ("[]", 400), (plain("x" * (1 << 20)), 413)):
            self.assertEqual(router.request("POST", "/v1/chat/completions", body)[0], status)
        for body in ("{", {}, {"kind": "decode"}, {"kind": "x", "url": "http://127.0.0.1:1"},
                     {"kind": "decode", "url": "http://127.0.0.1:1/../x"}, {"kind": "decode", "url": self.prefill.url}):
            self.assertEqual(router.request("POST", "/workers", body)[0], 400, body)
        closed = self.router("--prefill", self.prefill.url, "--decode", self.decode.url)
        self.assertEqual(closed.request("POST", "/workers", {"kind": "decode", "url": "http://127.0.0.1:1"})[0], 403)
        self.wait_ready(closed)
        self.assert_right(closed)


class Limits(Pair):
    """Too little of everything."""

    def test_without_workers(self):
        router = self.router("--open")
        self.assertEqual(router.get_json("/health")[0], 200)
        self.assertEqual(router.get_json("/readiness")[0], 503)
        status, answer = router.chat(plain())
        self.assertEqual((status, answer["error"]["code"]), (503, "no_worker"))

    def test_more_requests_than_pages(self):
        # Two rows on each side: prefilled requests wait for the decode server, and others for them.
        router = self.start(prefill=("--batch", 1, "--rows", 2), decode=("--batch", 2, "--rows", 2))
        at_once(12, lambda index: self.assert_right(router, 300 + index))
        for worker in (self.prefill, self.decode):
            worker.wait_empty()


class LostDecode(Pair):
    """Decode servers that die."""

    def test_decode_killed_in_mid_stream(self):
        router = self.start(decode=ENDLESS)
        streams = [self.stream(router, seed) for seed in range(4)]
        for stream in streams:
            stream.first_token()
        whole = []

        def ask():
            try:
                whole.append(router.chat(Story(9).ask()))
            except Exception as error:
                whole.append(error)

        waiting = threading.Thread(target=ask)
        waiting.start()
        wait_for(lambda: self.decode.pages()["taken"] == 5 or whole, "five requests")
        self.assertEqual(whole, [])
        self.decode.kill()
        for stream in streams:
            self.assert_failed(stream, "worker_lost")
        waiting.join()
        status, answer = whole[0]
        self.assertIn((status, answer["error"]["code"]), ((502, "worker_lost"), (503, "no_worker")))
        # Nothing is left anywhere.
        self.prefill.wait_empty()
        self.wait_state(router, relays=0, failed=5)
        self.wait_down(router, decode_up=0)
        status, answer = router.chat(plain())
        self.assertEqual((status, answer["error"]["code"]), (503, "no_worker"))
        # And all is well once it is back.
        decode = self.worker("decode", router)
        self.wait_ready(router)
        self.assert_right(router)
        for worker in (self.prefill, decode):
            worker.wait_empty()

    def test_decode_comes_back_at_the_same_address(self):
        router = self.start()
        port = self.decode.port
        self.decode.kill()
        self.wait_down(router, decode_up=0)
        # Its port is free in all likelihood; if someone else has it now, this test has nothing to say.
        try:
            decode = Server(BUILD, "decode", "--repair", port=port)
        except AssertionError as error:
            if "cannot be listened on" in str(error):
                self.skipTest("skipped: the port was taken meanwhile")
            raise
        self.addCleanup(decode.close)
        self.wait_ready(router)
        self.assert_right(router)

    def test_decode_killed_while_pages_wait_for_it(self):
        # The decode server has no row for the later requests, so their pages wait in the prefill server.
        router = self.start(decode=("--batch", 1, "--rows", 1, *ENDLESS))
        streams = [self.stream(router, seed) for seed in range(4)]
        wait_for(lambda: self.prefill.pages()["prefilled"] >= 2, "prefilled requests")
        self.decode.kill()
        for stream in streams:
            if stream.open() == 200:
                self.assert_failed(stream, "worker_lost")
            else:
                self.assertIn(stream.status, (502, 503))
        self.prefill.wait_empty()
        self.wait_state(router, relays=0)

    def test_another_worker_takes_over(self):
        router = self.start(decode=ENDLESS)
        self.worker("decode", router)
        self.wait_ready(router, decode=2)
        # Each has some of these; those of the dead one had told their clients nothing yet and are tried again.
        results = []
        threads = [threading.Thread(target=lambda seed=seed: results.append(self.assert_right(router, seed)))
                   for seed in range(6)]
        for thread in threads:
            thread.start()
        wait_for(lambda: self.decode.pages()["taken"] >= 2, "requests at the slow server")
        self.decode.kill()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 6)
        state = router.get_json("/debug/state")[1]
        self.assertGreaterEqual(state["retried"], 2)
        self.assertEqual(state["failed"], 0)
        self.prefill.wait_empty()


class LostOther(Pair):
    """Other parts than the decode server that die, and clients."""

    def test_prefill_killed(self):
        router = self.start(decode=SLOW)
        running = self.stream(router, 1)
        running.first_token()
        # This one is somewhere on its way when its server dies; the other one comes for certain to nothing.
        self.stream(router, 2)
        self.prefill.freeze()
        late = self.stream(router, 3)
        wait_for(lambda: router.get_json("/debug/state")[1]["begun"] == 3, "the third request")
        self.prefill.kill()
        # What has its pages does not need the prefill server any more.
        self.assertTrue(running.answer().done)
        self.assertIn(late.open(), (502, 503))
        self.decode.wait_empty()
        self.wait_state(router, relays=0)
        self.wait_down(router, prefill_up=0)
        prefill = self.worker("prefill", router)
        self.wait_ready(router)
        self.assert_right(router)
        for worker in (prefill, self.decode):
            worker.wait_empty()

    def test_router_killed(self):
        router = self.start(decode=ENDLESS)
        streams = [self.stream(router, seed) for seed in range(4)]
        streams[0].first_token()
        router.kill()
        for stream in streams:
            with self.assertRaises((ConnectionError, OSError)):
                stream.answer()
        for worker in (self.prefill, self.decode):
            worker.wait_empty()

    def test_clients_that_go_away(self):
        router = self.start(decode=("--batch", 2, "--rows", 2, *SLOW))
        streams = [self.stream(router, seed) for seed in range(6)]
        streams[0].first_token()
        for stream in streams:
            stream.close()
        for worker in (self.prefill, self.decode):
            worker.wait_empty()
        self.wait_state(router, relays=0)
        self.assert_right(router)


class Leaving(Pair):
    """Parts that are told to end."""

    def test_decode_finishes_what_runs(self):
        router = self.start(decode=SLOW)
        streams = [self.stream(router, seed) for seed in range(3)]
        for stream in streams:
            stream.first_token()
        self.decode.terminate()
        for stream in streams:
            self.assertTrue(stream.answer().done)
        self.assertEqual(self.decode.wait(), 0)
        self.wait_down(router, decode_up=0)
        self.prefill.wait_empty()

    def wait_waiting(self):
        """One request decodes, and the pages of another wait in the prefill server."""
        def waiting():
            decode, prefill = self.decode.pages(), self.prefill.pages()
            return (decode["running"], decode["transfers"], prefill["rooms"], prefill["prefilled"]) == (1, 1, 1, 1)

        wait_for(waiting, "pages that wait")

    def test_prefill_hands_over_what_it_has(self):
        router = self.start(decode=("--batch", 1, "--rows", 1))
        self.decode.pause()
        streams = [self.stream(router, seed) for seed in range(2)]
        self.wait_waiting()
        self.prefill.terminate()
        wait_for(lambda: "shutting down" in self.prefill.output(), "the shutdown")
        self.decode.resume()
        for stream in streams:
            self.assertTrue(stream.answer().done)
        self.assertEqual(self.prefill.wait(), 0)
        self.decode.wait_empty()

    def test_prefill_without_grace(self):
        router = self.start(prefill=("--grace", 0), decode=("--batch", 1, "--rows", 1))
        self.decode.pause()
        streams = [self.stream(router, seed) for seed in range(2)]
        self.wait_waiting()
        self.prefill.terminate()
        self.assertEqual(self.prefill.wait(), 1)
        self.decode.resume()
        # The one that decodes is finished; the other is refused, or had its pages fetched before; nothing in between.
        finished = 0
        for stream in streams:
            if stream.open() == 200:
                finished += stream.answer().done
            else:
                self.assertIn(stream.status, (502, 503))
        self.assertGreaterEqual(finished, 1)
        self.decode.wait_empty()
        self.wait_state(router, relays=0)

    def test_router_finishes_what_runs(self):
        router = self.start(decode=SLOW)
        stream = self.stream(router)
        stream.first_token()
        router.terminate()
        self.assertTrue(stream.answer().done)
        self.assertEqual(router.wait(), 0)

    def test_router_without_grace(self):
        router = self.start(decode=ENDLESS, router=("--grace", 0))
        stream = self.stream(router)
        stream.first_token()
        router.terminate()
        self.assert_failed(stream, "shutting_down")
        self.assertEqual(router.wait(), 1)
        for worker in (self.prefill, self.decode):
            worker.wait_empty()


class Alone(Pair):
    """Workers that are talked to without a router, well or badly."""

    def chat_with(self, prefill, room, seed=1):
        return dict(Story(seed).ask(), bootstrap_host="127.0.0.1", bootstrap_port=prefill.port, bootstrap_room=room)

    def test_a_hand_over_step_by_step(self):
        prefill = self.worker("prefill", None)
        answers = []
        chat = threading.Thread(target=lambda: answers.append(prefill.chat(self.chat_with(prefill, 7))))
        chat.start()
        status, headers, pages = prefill.request("GET", "/rooms/7")
        self.assertEqual((status, headers["Content-Type"]), (200, "application/octet-stream"))
        self.assertGreater(len(pages), 1000)
        # Handed over, but not yet acknowledged: still held.
        counts = prefill.pages()
        self.assertLess(counts["free_pages"], counts["pages"])
        self.assertEqual(counts["rooms"], 1)
        self.assertEqual(prefill.request("GET", "/rooms/7")[0], 409)
        self.assertEqual(prefill.chat(self.chat_with(prefill, 7))[0], 409)
        self.assertEqual(prefill.request("DELETE", "/rooms/7")[0], 200)
        chat.join()
        self.assertEqual(answers[0][0], 200)
        self.assertEqual(prefill.request("DELETE", "/rooms/7")[0], 404)
        prefill.wait_empty()

    def test_nobody_fetches_the_pages(self):
        prefill = self.worker("prefill", None, "--room-timeout", 300)
        status, answer = prefill.chat(self.chat_with(prefill, 8))
        self.assertEqual((status, answer["error"]["code"]), (504, "transfer_timeout"))
        prefill.wait_empty()

    def test_nobody_brings_the_request(self):
        prefill = self.worker("prefill", None, "--room-timeout", 300)
        self.assertEqual(prefill.request("GET", "/rooms/9")[0], 404)
        prefill.wait_empty()

    def test_a_room_that_is_left(self):
        prefill = self.worker("prefill", None)
        # The decode server leaves before the router has come, and the router before the decode server has.
        with socket.create_connection(("127.0.0.1", prefill.port)) as client:
            client.sendall(b"GET /rooms/10 HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_for(lambda: prefill.pages()["rooms"] == 1, "a room")
        prefill.wait_empty()
        with socket.create_connection(("127.0.0.1", prefill.port)) as client:
            text = json.dumps(self.chat_with(prefill, 11)).encode()
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(text) +
                           text)
            wait_for(lambda: prefill.pages()["prefilled"] == 1, "a prefilled request")
        prefill.wait_empty()

    def test_wrong_requests(self):
        prefill = self.worker("prefill", None)
        decode = self.worker("decode", None)
        for worker in (prefill, decode):
            self.assertEqual(worker.request("GET", "/health")[0], 200)
            status, answer = worker.chat(plain())
            self.assertEqual((status, answer["error"]["param"]), (400, "bootstrap_room"))
        for path in ("/rooms/", "/rooms/x", "/rooms/0", "/rooms/-1", "/rooms/99999999999999999999", "/rooms/1/2"):
            self.assertEqual(prefill.request("GET", path)[0], 404, path)
        for worker in (prefill, decode):
            worker.wait_empty()

    def test_a_prefill_server_that_is_not_there(self):
        decode = self.worker("decode", None)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # taken, and nobody listens
            body = dict(plain(), bootstrap_host="127.0.0.1", bootstrap_port=unused.getsockname()[1], bootstrap_room=1)
            status, answer = decode.chat(body)
        self.assertEqual((status, answer["error"]["code"]), (502, "transfer_failed"))
        decode.wait_empty()

    def test_pages_of_another_key_format(self):
        router = self.router("--open")
        prefill = self.worker("prefill", router, "--keys", "fp8")
        decode = self.worker("decode", router, "--keys", "bf16")
        self.wait_ready(router)
        status, answer = router.chat(Story(1).ask())
        self.assertEqual((status, answer["error"]["code"]), (502, "transfer_failed"))
        for worker in (prefill, decode):
            worker.wait_empty()


class Peer(http.server.ThreadingHTTPServer):
    """A server that a worker or router takes for one of its own, and that does what a test tells it to."""

    daemon_threads = True

    def __init__(self, chat=None, room=None):
        test_chat, test_room = chat, room

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True  # who asked has hung up

            def do_GET(self):
                if self.path.startswith("/rooms/"):
                    test_room(self)
                else:
                    self.send(200, "application/json", b"{}")

            def do_DELETE(self):
                self.send(200, "application/json", b"{}")

            def do_POST(self):
                self.body = self.rfile.read(int(self.headers["Content-Length"]))
                test_chat(self)

        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class Hostile(Pair):
    """Peers that answer with nonsense, half an answer, or not at all."""

    def peer(self, **does):
        peer = Peer(**does)
        self.addCleanup(peer.close)
        return peer

    def test_prefill_servers_that_hand_over_nonsense(self):
        decode, impatient = self.worker("decode", None), self.worker("decode", None, "--room-timeout", 300)
        real = self.worker("prefill", None)
        chat = threading.Thread(target=real.chat, args=(dict(
            Story(1).ask(), bootstrap_host="127.0.0.1", bootstrap_port=real.port, bootstrap_room=5),))
        chat.start()
        pages = real.request("GET", "/rooms/5")[2]
        self.assertEqual(real.request("DELETE", "/rooms/5")[0], 200)
        chat.join()
        flipped = bytearray(pages)
        flipped[8] ^= 0xff
        binary, text = "application/octet-stream", "application/json"

        def broken(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", binary)
            handler.send_header("Content-Length", str(len(pages)))
            handler.end_headers()
            handler.wfile.write(pages[:len(pages) // 2])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        def send(status, kind, body):
            return lambda handler: handler.send(status, kind, body)

        for name, room in (("empty", send(200, binary, b"")), ("random", send(200, binary, os.urandom(100_000))),
                           ("cut", send(200, binary, pages[:-1])), ("longer", send(200, binary, pages + b"\0")),
                           ("a flipped header", send(200, binary, bytes(flipped))), ("refused", send(500, text, b"{}")),
                           ("not JSON", send(200, text, b"{")), ("JSON of nothing", send(200, text, b"{}")),
                           ("too many tokens", send(200, text, b'{"tokens":[1,2],"prompt_tokens":1}')),
                           ("broken", broken), ("silent", self.silent)):
            with self.subTest(name):
                peer = self.peer(room=room)
                server = impatient if name == "silent" else decode
                status, answer = server.chat(dict(Story(1).ask(), bootstrap_host="127.0.0.1", bootstrap_port=peer.port,
                                                  bootstrap_room=5))
                self.assertEqual(answer["error"]["code"], "transfer_failed", answer)
                self.assertEqual(status, 504 if name == "silent" else 502)
                server.wait_empty()
        self.assertEqual(decode.request("GET", "/health")[0], 200)

    def setUp(self):
        self.over = threading.Event()
        self.addCleanup(self.over.set)

    def silent(self, handler):
        """Says nothing, for as long as the test lasts."""
        self.over.wait()

    def hostile_router(self, chat, *options):
        """A router whose prefill server is content, and whose decode server does as the test says."""
        prefill = self.peer(chat=lambda handler: handler.send(200, "application/json", b"{}"))
        decode = self.peer(chat=chat)
        router = self.router("--prefill", prefill.url, "--decode", decode.url, *options)
        self.wait_ready(router)
        return router

    CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'

    def streaming(self, *pieces, proper_end=True, stall=False):
        def chat(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for piece in pieces:
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                handler.wfile.flush()
            if stall:
                self.silent(handler)
            if proper_end:
                handler.wfile.write(b"0\r\n\r\n")
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
        return chat

    def test_decode_servers_whose_stream_is_not_whole(self):
        chunk = self.CHUNK
        for name, chat in (("no end", self.streaming(chunk, proper_end=False)),
                           ("an end without [DONE]", self.streaming(chunk)),
                           ("half an event", self.streaming(chunk, chunk[:20])),
                           ("half a [DONE]", self.streaming(chunk, b"data: [DON")),
                           ("silence", self.streaming(chunk, stall=True)),
                           ("an endless event", self.streaming(chunk, *[b"x" * 65536] * 40))):
            with self.subTest(name):
                # Of the silent one, the first piece must have come in time.
                router = self.hostile_router(chat, *(("--silence-timeout", 2000) if name == "silence" else ()))
                stream = self.stream(router)
                self.assertEqual(stream.open(), 200)
                self.assert_failed(stream, "worker_timeout" if name == "silence" else "worker_lost")
                self.assertEqual(stream.events[0], chunk[6:-2].decode())
                self.wait_state(router, relays=0)
                router.close()

    def test_whole_streams_pass_however_they_are_cut(self):
        text = self.CHUNK + b"data: [DONE]\n\n"
        router = self.hostile_router(self.streaming(*[text[i:i + 1] for i in range(len(text))]))
        self.assertTrue(self.stream(router).answer().done)

    def test_decode_servers_that_do_not_answer_whole(self):
        def cut(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"choices":')
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        def nothing(handler):
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        for name, chat, expected in (("cut", cut, (502,)), ("nothing", nothing, (502, 503)),
                                     ("silence", self.silent, (504,)),
                                     ("an empty stream", self.streaming(), (502,))):
            with self.subTest(name):
                router = self.hostile_router(chat, *(("--silence-timeout", 400) if name == "silence" else ()))
                status, answer = router.chat(plain())
                self.assertIn(status, expected, answer)
                self.assertIn("error", answer)
                self.wait_state(router, relays=0)
                router.close()

    def test_answers_of_workers_are_passed_on(self):
        error = b'{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"too_many_requests"}}'
        router = self.hostile_router(lambda handler: handler.send(429, "application/json", error))
        status, answer = router.chat(plain())
        self.assertEqual((status, answer), (429, json.loads(error)))

    def test_a_client_that_does_not_read_slows_its_worker_down(self):
        sent, pieces = [], 2500

        def flood(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            piece = self.CHUNK * 100
            try:
                for _ in range(pieces):
                    handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    sent.append(len(piece))
                handler.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (14, b"data: [DONE]\n\n"))
            except OSError:
                pass

        router = self.hostile_router(flood)
        stream = self.stream(router)
        stream.open()

        def stalled():
            before = len(sent)
            time.sleep(0.7)
            return before == len(sent)

        wait_for(stalled, "the flood to stop")
        # What no one reads is held in buffers of the system and within the router's limit, not without end.
        self.assertLess(len(sent), pieces)
        with open(f"/proc/{router.process.pid}/status", encoding="ascii") as file:
            resident = int(file.read().split("VmRSS:")[1].split()[0])
        self.assertLess(resident, 400 * 1024)  # KiB; sanitizers included
        # And it goes on once the client reads.
        count, last = 0, b""
        while data := stream.socket.recv(1 << 20):
            count += len(data)
            last = (last + data)[-100:]
            if last.endswith(b"0\r\n\r\n"):
                break
        self.assertIn(b"[DONE]", last)
        self.assertGreater(count, sum(sent) - 10_000)  # some came with the head


if __name__ == "__main__":
    unittest.main(verbosity=2)
