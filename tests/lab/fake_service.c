// A service for the tests of `gravel lab`: a real process that answers HTTP and whose rate of corrupt sessions is
// known.
//     fake_service --port N [--keys bf16|fp8] [--rate PERCENT]
// Its environment says the rest, as an inference server's would:
//     FAKE_SEED                   which sessions are corrupt is a function of this and of the session's number
//     FAKE_CAPTURE, FAKE_OVERLAP  corrupt only with keys bf16, capture graph and overlap 1
//     FAKE_NEEDS                  in place of that: corrupt unless all these variables are 1 ("A B")
//     FAKE_START                  die, hang (never answers), deaf (closes each connection), late (answers after 60 s)
//     FAKE_CHILDREN               processes to leave behind, each in a session of its own and deaf to SIGTERM
//     FAKE_DIE_AT                 ends with SIGKILL when this session is asked for
//     FAKE_LOSE                   does its work in a child without FAKE_OVERLAP, as a launcher that drops variables
//     would FAKE_TOUCH                  appends a byte to this file once a session was asked for FAKE_HOLD answers no
//     session while this file is there
// A file `safe` in its working folder that holds "yes" makes it clean: something for patches and file swaps to change.
#include <arpa/inet.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *setting(const char *name, const char *other)
{
    const char *value = getenv(name);
    return value ? value : other;
}

static const char *option(char **argv, const char *name, const char *other)
{
    for (; *argv; argv++) {
        if (strcmp(*argv, name) == 0)
            return argv[1];
    }
    return other;
}

static bool all_set(const char *names)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", names);
    for (char *save, *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        if (strcmp(setting(name, ""), "1") != 0)
            return false;
    }
    return true;
}

static bool file_says_safe(void)
{
    char text[64] = "";
    FILE *file = fopen("safe", "r");
    bool safe = file && fgets(text, sizeof text, file) && strncmp(text, "yes", 3) == 0;
    if (file)
        fclose(file);
    return safe;
}

static double corrupt_percent(char **argv)
{
    const char *needs = getenv("FAKE_NEEDS");
    bool corrupt = needs ? !all_set(needs)
                         : strcmp(option(argv, "--keys", "bf16"), "bf16") == 0 &&
                               strcmp(setting("FAKE_CAPTURE", "graph"), "graph") == 0 &&
                               strcmp(setting("FAKE_OVERLAP", "1"), "1") == 0;
    return corrupt && !file_says_safe() ? atof(option(argv, "--rate", "50")) : 0;
}

// FNV-1a and a finaliser: any function that looks random does.
static double uniform(const char *seed, unsigned long session)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *seed; seed++)
        hash = (hash ^ (unsigned char)*seed) * 0x100000001b3u;
    hash ^= session * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    return (double)((hash ^ (hash >> 31)) >> 11) * 0x1p-53;
}

static void leave_children(void)
{
    for (int i = atoi(setting("FAKE_CHILDREN", "0")); i > 0; i--) {
        if (fork() != 0)
            continue;
        setsid();
        signal(SIGTERM, SIG_IGN);
        if (fork() != 0)
            _exit(0);
        for (;;)
            pause();
    }
}

static void read_request(int connection, char *data, size_t size)
{
    size_t used = 0;
    data[0] = '\0';
    while (used + 1 < size) {
        ssize_t got = read(connection, data + used, size - used - 1);
        if (got <= 0)
            return;
        used += (size_t)got;
        data[used] = '\0';
        const char *end = strstr(data, "\r\n\r\n"), *length = strcasestr(data, "content-length:");
        if (end && used >= (size_t)(end + 4 - data) + (length ? strtoul(length + 15, NULL, 10) : 0))
            return;
    }
}

static void answer(int connection, const char *request, char **argv)
{
    char head[256];
    const char *body = "{\"choices\": [{\"message\": {\"role\": \"assistant\", \"content\": \"ready\"}}]}";
    const char *session = strstr(request, "/session/");
    if (session) {
        unsigned long number = strtoul(session + 9, NULL, 10);
        if (strtoul(setting("FAKE_DIE_AT", "4294967295"), NULL, 10) == number)
            raise(SIGKILL);
        FILE *touched = getenv("FAKE_TOUCH") ? fopen(getenv("FAKE_TOUCH"), "a") : NULL;
        if (touched) {
            fputc('x', touched);
            fclose(touched);
        }
        while (access(setting("FAKE_HOLD", "/nonexistent"), F_OK) == 0)
            usleep(5000);
        body = 100 * uniform(setting("FAKE_SEED", "0"), number) < corrupt_percent(argv) ? "corrupt" : "clean";
    }
    int length =
        snprintf(head, sizeof head,
                 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close"
                 "\r\n\r\n",
                 strlen(body));
    if (write(connection, head, (size_t)length) < 0 || write(connection, body, strlen(body)) < 0)
        perror("fake service: write");
}

int main(int argc, char **argv)
{
    const char *start = setting("FAKE_START", "");
    printf("fake service starts %s\n", start);
    fflush(stdout);
    if (strcmp(start, "die") == 0) {
        fprintf(stderr, "fake service: cannot allocate the KV cache\n");
        return 3;
    }
    if (getenv("FAKE_LOSE")) {
        unsetenv("FAKE_LOSE");
        if (fork() == 0) {
            unsetenv("FAKE_OVERLAP");
            execv("/proc/self/exe", argv);
        }
        for (;;)
            pause();
    }
    leave_children();
    if (strcmp(start, "hang") == 0)
        pause();
    if (strcmp(start, "late") == 0)
        sleep(60);
    int server = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)atoi(option(argv, "--port", "0")))};
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server, (struct sockaddr *)&address, sizeof address) != 0 || listen(server, 64) != 0) {
        perror("fake service: bind");
        return 4;
    }
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        static char request[65536];
        int connection = accept(server, NULL, NULL);
        if (connection < 0)
            continue;
        if (strcmp(start, "deaf") != 0) {
            read_request(connection, request, sizeof request);
            answer(connection, request, argv);
        }
        close(connection);
    }
}
