// A trial's command for the tests: asks the fake service about its sessions and writes the counts.
//     fake_trial --port N --sessions N --json FILE [--failed N] [--hang] [--exit CODE]
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *option(char **argv, const char *name, const char *other)
{
    for (; *argv; argv++) {
        if (strcmp(*argv, name) == 0)
            return argv[1] ? argv[1] : "";
    }
    return other;
}

static bool ask(int port, int session, char *text, size_t size)
{
    char request[128];
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    int length = snprintf(request, sizeof request, "GET /session/%d HTTP/1.1\r\nHost: x\r\n\r\n", session);
    size_t used = 0;
    ssize_t got;
    bool good = connect(connection, (struct sockaddr *)&address, sizeof address) == 0 &&
                write(connection, request, (size_t)length) == length;
    while (good && used + 1 < size && (got = read(connection, text + used, size - used - 1)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    close(connection);
    return good && strstr(text, "\r\n\r\n");
}

int main(int argc, char **argv)
{
    int port = atoi(option(argv, "--port", "0")), sessions = atoi(option(argv, "--sessions", "1"));
    int failed = atoi(option(argv, "--failed", "0")), corrupt = 0;
    const char *path = option(argv, "--json", NULL);
    if (option(argv, "--hang", NULL))
        sleep(600);
    FILE *out = fopen(path ? path : "/dev/null", "w");
    if (!out)
        return 5;
    fprintf(out, "{\"sessions\": [");
    for (int i = 0; i < sessions; i++) {
        char text[4096];
        if (!ask(port, i, text, sizeof text)) {
            fprintf(stderr, "fake trial: session %d has no answer\n", i);
            return 6;
        }
        bool bad = strstr(text, "corrupt") != NULL, lost = i >= sessions - failed;
        corrupt += bad && !lost;
        fprintf(out, "%s{\"class\": \"%s\"}", i ? ", " : "", lost ? "failure" : bad ? "corrupt" : "clean");
        printf("session %d: so far %d of %d corrupt\n", i, corrupt, i + 1);
    }
    fprintf(out, "], \"counts\": {\"sessions\": %d, \"corrupt\": %d, \"failed\": %d}}\n", sessions, corrupt, failed);
    if (fclose(out) != 0)
        return 7;
    printf("CORRUPTION sessions: %d/%d\n", corrupt, sessions);
    return atoi(option(argv, "--exit", corrupt ? "1" : "0"));
}
