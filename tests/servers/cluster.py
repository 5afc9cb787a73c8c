"""Servers of the specimen as processes, and clients for them: what the tests in this folder share."""

import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

PATIENCE = 120  # seconds before a wait counts as failed; nothing here is expected to take so long


def wait_for(condition, what, patience=PATIENCE):
    """Returns the first true value of condition()."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("waited in vain for " + what)
        time.sleep(0.02)


class Server:
    """One process of gravel-specimen with a port of its own choosing."""

    def __init__(self, build, command, *options, port=0):
        self.command, self.closed = command, False
        self.folder = tempfile.mkdtemp()
        self.log = os.path.join(self.folder, "log")
        port_file, self.pause_file = os.path.join(self.folder, "port"), os.path.join(self.folder, "pause")
        if command != "router":
            options = (*options, "--pause-file", self.pause_file)
        environment = dict(os.environ)
        # The software driver stands in for the GPU's.
        environment["LD_LIBRARY_PATH"] = os.path.join(build, "soft") + ":" + environment.get("LD_LIBRARY_PATH", "")
        # ThreadSanitizer sleeps for a second at the end of each process, in the hope of a late race.
        environment["TSAN_OPTIONS"] = environment.get("TSAN_OPTIONS", "") + ":atexit_sleep_ms=0"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [os.path.join(build, "gravel-specimen"), command, "--port", str(port), "--port-file", port_file,
                 *map(str, options)], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        wait_for(lambda: os.path.exists(port_file) or self.process.poll() is not None, command + " to listen")
        if not os.path.exists(port_file):
            raise AssertionError(f"{command} did not start: {self.output()}")
        with open(port_file, encoding="ascii") as file:
            self.port = int(file.read())

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        """Stops the whole process where it stands. Connections to it are made and requests taken by the system alone."""
        self.process.send_signal(signal.SIGSTOP)

    def pause(self):
        """Lets the engine begin no step from now on: what has not ended will not end before `resume`."""
        with open(self.pause_file, "w", encoding="ascii"):
            pass

    def resume(self):
        os.unlink(self.pause_file)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(PATIENCE)

    def close(self):
        """Ends the process if it still runs, and takes a sanitizer's report for a failure."""
        if self.closed:
            return
        self.closed = True
        if self.process.poll() is None:
            if os.path.exists(self.pause_file):
                self.resume()
            self.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{self.command} does not end: {self.output()}") from None
        text = self.output()
        shutil.rmtree(self.folder, ignore_errors=True)
        if re.search(r"Sanitizer|runtime error:", text):
            raise AssertionError(f"{self.command}: {text}")
        if self.process.returncode not in (0, 1, -signal.SIGKILL):
            raise AssertionError(f"{self.command} ended with {self.process.returncode}: {text}")

    # ---- Requests ----

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE):
        """Status, headers and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get_json(self, path):
        status, _, body = self.request("GET", path)
        return status, json.loads(body)

    def chat(self, body):
        """Status and JSON of a chat request that is not streamed."""
        status, _, answer = self.request("POST", "/v1/chat/completions", body)
        return status, json.loads(answer)

    def pages(self):
        return self.get_json("/debug/pages")[1]

    def is_empty(self):
        """Nothing is held: no page, no row, no request, no room, no transfer."""
        counts = self.pages()
        return (counts["free_pages"] == counts["pages"] and counts["free_rows"] == counts["rows"] and
                all(counts[name] == 0 for name in
                    ("waiting", "running", "prefilled", "requests", "taken", "rooms", "transfers")))

    def wait_empty(self):
        wait_for(self.is_empty, f"{self.command} to be empty: {self.pages()}")


class Stream:
    """A streamed chat request, read event by event. Knows a proper end from a lost connection."""

    def __init__(self, server, body, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", server.port))
        text = json.dumps(dict(body, stream=True)).encode()
        self.socket.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(text) +
                            text)
        self.file = self.socket.makefile("rb")
        self.status, self.headers = None, {}
        self.pending, self.ended = b"", False
        self.events = []  # all that came

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection broke")
        return line.rstrip(b"\r\n")

    def open(self):
        """Waits for the head of the answer and returns its status."""
        if self.status is None:
            self.status = int(self.line().split()[1])
            while line := self.line():
                name, _, value = line.decode().partition(":")
                self.headers[name.lower()] = value.strip()
        return self.status

    def event(self):
        """The next event's data; None at the proper end."""
        if self.open() != 200 or self.headers.get("transfer-encoding") != "chunked":
            raise AssertionError(f"not a stream: {self.status} {self.file.read()}")
        while b"\n\n" not in self.pending:
            if self.ended:
                if self.pending:
                    raise AssertionError(f"the stream ends in half an event: {self.pending}")
                return None
            size = int(self.line(), 16)
            chunk = self.file.read(size + 2)
            if len(chunk) != size + 2:
                raise ConnectionError("the connection broke")
            self.pending += chunk[:-2]
            self.ended = size == 0
        event, _, self.pending = self.pending.partition(b"\n\n")
        data, = [line[6:].decode() for line in event.split(b"\n") if line.startswith(b"data: ")]
        self.events.append(data)
        return data

    def answer(self):
        """Reads to the end; what a client makes of all events."""
        while self.event() is not None:
            pass
        return Answer(self.events)

    def first_token(self):
        """Reads up to the first piece of the answer."""
        while True:
            data = self.event()
            if data is None or data == "[DONE]" or "error" in json.loads(data):
                raise AssertionError(f"no token came: {self.events}")
            delta = json.loads(data)["choices"][0]["delta"]
            if delta.get("content") or delta.get("tool_calls"):
                return

    def close(self):
        self.file.close()
        self.socket.close()


class Answer:
    """What a client makes of the events of a stream."""

    def __init__(self, events):
        self.done = bool(events) and events[-1] == "[DONE]"
        self.error = self.finish_reason = self.usage = None
        self.content, self.calls = "", []
        for data in events:
            if data == "[DONE]":
                continue
            chunk = json.loads(data)
            if "error" in chunk:
                self.error = chunk["error"]
                continue
            self.usage = chunk.get("usage") or self.usage
            for choice in chunk["choices"]:
                self.finish_reason = choice["finish_reason"] or self.finish_reason
                self.content += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", ()):
                    if call["index"] == len(self.calls):
                        self.calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                    self.calls[call["index"]]["arguments"] += call["function"].get("arguments", "")


# ---- Stories --------------------------------------------------------------------------------------------------------

NAMES = "Mira Tobin Ada Felix Nora Hugo Ines Oskar Lena Pavel Rosa Emil Greta Ivo Selma Jonas".split()
PLACES = ("north-gate south-gate harbour library archive tower garden stable cellar attic bridge market chapel mill "
          "foundry quarry").split()
COLOURS = "red blue green white black amber violet silver golden copper scarlet ivory crimson teal ochre pearl".split()
ANIMALS = "otter falcon badger heron lynx raven marten stoat osprey beaver weasel magpie ferret curlew salmon hare".split()
PINS = "17 23 31 38 42 45 56 59 61 64 72 75 83 86 90 97".split()
VERBS = "unlock lock open close inspect repair rent seal".split()
FILLER = ("the rain was late and the river quiet.", "all doors are old, and some need work again.",
          "in the morning the wind comes from the road.", "most people walk home early!")

TOOLS = [{"type": "function", "function": {
    "name": verb, "description": verb + " a door", "parameters": {
        "type": "object", "required": ["who", "code", "pin"], "properties": {
            "who": {"type": "string"}, "code": {"type": "string"}, "pin": {"type": "integer"}}}}} for verb in VERBS]


class Story:
    """Planted facts, and rounds of questions whose right tool call is known."""

    def __init__(self, seed, facts=8, filler=0):
        self.random = random.Random(seed)
        draw = lambda words: self.random.sample(words, facts)
        self.facts = list(zip(draw(NAMES), draw(PLACES), draw(COLOURS), draw(ANIMALS), draw(PINS)))
        lines = ["you are an agent with tools."]
        lines += [f"{name} guards the {place}." for name, place, *_ in self.facts]
        for _, place, colour, animal, pin in self.random.sample(self.facts, facts):
            lines.append(f"the code of {place} is {colour}-{animal} pin {pin}.")
            lines += self.random.choices(FILLER, k=filler)
        self.messages = [{"role": "system", "content": " ".join(lines)}]
        self.wanted = None

    def ask(self):
        """Puts the next question; returns the body of the request."""
        name, _, colour, animal, pin = self.random.choice(self.facts)
        verb = self.random.choice(VERBS)
        self.messages.append({"role": "user", "content": f"please {verb} the door for {name}."})
        self.wanted = (verb, {"who": name, "code": f"{colour}-{animal}", "pin": int(pin)})
        return {"model": "gravel-specimen", "messages": list(self.messages), "tools": TOOLS, "max_tokens": 64}

    def hear(self, call):
        """Takes the model's call (id, name, arguments as text) into the history, and answers it."""
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [
            {"id": call["id"], "type": "function",
             "function": {"name": call["name"], "arguments": call["arguments"]}}]})
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": '{"status":"ok"}'})

    def is_right(self, call):
        return (call["name"], json.loads(call["arguments"])) == self.wanted


def call_of(answer):
    """The one call of an answer that was not streamed, in the form of Answer.calls."""
    call, = answer["choices"][0]["message"]["tool_calls"]
    return {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}


def plain(words="hello", **more):
    """The body of a request without tools."""
    return dict({"model": "gravel-specimen", "messages": [{"role": "user", "content": words}], "max_tokens": 64}, **more)


def at_once(count, work):
    """Runs work(0) ... work(count - 1) on threads of their own; returns the results, or raises the first error."""
    results = [None] * count

    def run(index):
        try:
            results[index] = work(index)
        except BaseException as error:  # handed to the caller
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
