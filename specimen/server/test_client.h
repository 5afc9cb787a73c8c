// A client for the servers' tests that can misbehave: raw bytes over a socket. Include it behind cmocka.
#ifndef GV_SERVER_TEST_CLIENT_H
#define GV_SERVER_TEST_CLIENT_H

#include "specimen/server/text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENT_PATIENCE_MS = 120000 };

static inline int client_connect(unsigned port)
{
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(made >= 0);
    if (connect(made, (struct sockaddr *)&address, sizeof address) != 0) {
        close(made);
        return -1;
    }
    return made;
}

static inline void client_send(int client, const char *text)
{
    size_t length = strlen(text);
    // The server may hang up in the middle, which is for the test to notice by what comes back.
    for (size_t sent = 0; sent < length;) {
        ssize_t count = send(client, text + sent, length - sent, MSG_NOSIGNAL);
        if (count <= 0)
            return;
        sent += (size_t)count;
    }
}

// Reads until `until` has come, or, for NULL, until the server closes. The text is terminated; the caller frees it.
static inline char *client_read(int client, const char *until)
{
    gv_text text = {0};
    char piece[4096];
    for (;;) {
        struct pollfd ask = {.fd = client, .events = POLLIN};
        if (poll(&ask, 1, CLIENT_PATIENCE_MS) != 1)
            fail_msg("nothing came for %d ms; so far: %.*s", CLIENT_PATIENCE_MS, (int)text.length, text.data);
        ssize_t count = recv(client, piece, sizeof piece, 0);
        if (count <= 0)
            break;
        gv_text_add(&text, piece, (size_t)count);
        if (until && memmem(text.data, text.length, until, strlen(until)))
            break;
    }
    char *data = gv_text_take(&text, NULL);
    assert_non_null(data);
    return data;
}

// One request and its whole answer on a connection of its own.
static inline char *client_ask(unsigned port, const char *request)
{
    int client = client_connect(port);
    assert_true(client >= 0);
    client_send(client, request);
    char *answer = client_read(client, NULL);
    close(client);
    return answer;
}

static inline int client_status(const char *answer)
{
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

#endif
