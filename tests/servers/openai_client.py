"""The servers as PyPI's `openai` client sees them. Runs under the interpreter that has it; see openai_client.sh.

usage: openai_client.py BUILD [TEST...]
"""

import json
import os
import sys
import unittest

import openai

from cluster import PATIENCE, Server, Story, wait_for

BUILD = os.path.abspath(sys.argv.pop(1))
MODEL = "gravel-specimen"


def client_of(server, **more):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=PATIENCE, max_retries=0, **more)


def question(story):
    body = story.ask()
    return {"model": body["model"], "messages": body["messages"], "tools": body["tools"]}


class Client:
    """What holds for a single server and for a pair behind its router; `server` is where the client goes."""

    def setUp(self):
        self.client = client_of(self.server)
        self.addCleanup(self.client.close)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL])

    def test_tool_calls_in_a_conversation(self):
        story = Story(41)
        for _ in range(3):
            answer = self.client.chat.completions.create(**question(story), temperature=0)
            choice = answer.choices[0]
            self.assertEqual(choice.finish_reason, "tool_calls")
            call, = choice.message.tool_calls
            self.assertEqual(call.type, "function")
            self.assertEqual((call.function.name, json.loads(call.function.arguments)), story.wanted)
            self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
            # The client's own object goes back, as agents do it.
            story.messages.append(choice.message.model_dump(exclude_none=True))
            story.messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"status":"ok"}'})

    def test_streamed_tool_calls(self):
        story = Story(42)
        for _ in range(2):
            arguments, names, ids, reasons, usage = "", [], [], [], None
            stream = self.client.chat.completions.create(**question(story), stream=True,
                                                         stream_options={"include_usage": True})
            for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    reasons += [choice.finish_reason] if choice.finish_reason else []
                    for call in choice.delta.tool_calls or ():
                        self.assertEqual(call.index, 0)
                        ids += [call.id] if call.id else []
                        names += [call.function.name] if call.function.name else []
                        arguments += call.function.arguments or ""
            self.assertEqual((names, json.loads(arguments)), ([story.wanted[0]], story.wanted[1]))
            self.assertEqual((len(ids), reasons), (1, ["tool_calls"]))
            self.assertGreater(usage.completion_tokens, 5)
            story.hear({"id": ids[0], "name": names[0], "arguments": arguments})

    def test_the_clients_own_accumulation(self):
        story = Story(43)
        with self.client.chat.completions.stream(**question(story)) as stream:
            final = stream.get_final_completion()
        call, = final.choices[0].message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), story.wanted)

    def test_words(self):
        messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
        whole = self.client.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=8)
        pieces = [chunk.choices[0].delta.content or "" for chunk in self.client.chat.completions.create(
            model=MODEL, messages=messages, max_completion_tokens=8, stream=True)]
        self.assertEqual("".join(pieces), whole.choices[0].message.content)
        self.assertIn(whole.choices[0].finish_reason, ("stop", "length"))

    def test_errors_have_their_classes(self):
        messages = [{"role": "user", "content": "hello"}]
        create = self.client.chat.completions.create
        for error, more in ((openai.BadRequestError, {"n": 2}), (openai.NotFoundError, {"model": "gpt-4"}),
                            (openai.BadRequestError, {"messages": []}), (openai.BadRequestError, {"max_tokens": 0}),
                            (openai.BadRequestError, {"messages": [{"role": "user", "content": "mill " * 50_000}]})):
            with self.assertRaises(error) as caught:
                create(**{"model": MODEL, "messages": messages, **more})
            self.assertTrue(caught.exception.body["message"])
        with self.assertRaises(openai.APIStatusError) as caught:
            create(model=MODEL, messages=[{"role": "user", "content": "x" * (1 << 20)}])
        self.assertEqual(caught.exception.status_code, 413)


class Single(Client, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(BUILD, "serve", "--repair")

    @classmethod
    def tearDownClass(cls):
        cls.server.wait_empty()
        cls.server.close()


class Routed(Client, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(BUILD, "router", "--open", "--check-interval", 100)
        cls.workers = [Server(BUILD, kind, "--repair", "--router", cls.server.url) for kind in ("prefill", "decode")]
        wait_for(lambda: cls.server.get_json("/readiness")[0] == 200, "the pair to be ready")

    @classmethod
    def tearDownClass(cls):
        for worker in cls.workers:
            worker.wait_empty()
        for server in (cls.server, *cls.workers):
            server.close()


class Trouble(unittest.TestCase):
    def start(self, *options):
        server = Server(BUILD, *options)
        self.addCleanup(server.close)
        return server

    def test_too_many_requests(self):
        server = self.start("serve", "--repair", "--max-requests", 1, "--hold", 100_000_000)
        client = client_of(server)
        stream = client.chat.completions.create(**question(Story(1)), stream=True)
        next(iter(stream))
        server.pause()
        with self.assertRaises(openai.RateLimitError):
            client.chat.completions.create(**question(Story(2)))
        stream.close()
        server.resume()
        # With the client's own retries it gets through.
        patient = client_of(server).with_options(max_retries=10)
        self.assertEqual(patient.chat.completions.create(**question(Story(2))).choices[0].finish_reason, "tool_calls")

    def test_a_decode_server_killed_in_mid_stream_raises(self):
        router = self.start("router", "--open", "--check-interval", 100)
        self.start("prefill", "--repair", "--router", router.url)
        decode = self.start("decode", "--repair", "--hold", 1_000_000_000, "--router", router.url)
        wait_for(lambda: router.get_json("/readiness")[0] == 200, "the pair to be ready")
        stream = iter(client_of(router).chat.completions.create(**question(Story(1)), stream=True))
        next(stream)
        decode.kill()
        with self.assertRaises(openai.APIError) as caught:
            for _ in stream:
                pass
        self.assertIn("lost", str(caught.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)
