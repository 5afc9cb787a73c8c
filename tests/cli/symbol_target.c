// A program for the tests of `gravel run`: writes the trace that the recorder would write, under the name in
// GRAVEL_TRACE, with its own call stack as that of a launch. The lines that the test expects are marked.
#include "trace/writer.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

static void *frames[32];
static int frame_count;

// The main program's load address and build id, which is what frames and modules are made of.
typedef struct program {
    uint64_t bias;
    const uint8_t *build_id;
    size_t build_id_length;
} program;

static int first_object(struct dl_phdr_info *info, size_t size, void *user)
{
    program *own = user;
    own->bias = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const char *next = (const char *)(info->dlpi_addr + header->p_vaddr);
        const char *limit = next + header->p_memsz;
        while (header->p_type == PT_NOTE && next + sizeof(ElfW(Nhdr)) < limit) {
            const ElfW(Nhdr) *note = (const void *)next;
            const char *name = next + sizeof *note, *content = name + ((note->n_namesz + 3) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && strcmp(name, "GNU") == 0) {
                own->build_id = (const uint8_t *)content;
                own->build_id_length = note->n_descsz;
            }
            next = content + ((note->n_descsz + 3) & ~3u);
        }
    }
    return 1;
}

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *context, void *user)
{
    frames[frame_count++] = (void *)_Unwind_GetIP(context);
    return frame_count < 32 ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// Not backtrace(3): a sanitizer's run time puts a function of its own in front of that.
__attribute__((noinline)) static void launch_kernel(void)
{
    _Unwind_Backtrace(take_frame, NULL);
    __asm__ volatile("" ::: "memory");
}

static inline __attribute__((always_inline)) void inlined_step(void)
{
    launch_kernel(); // line of the inlined call
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void decode(void)
{
    inlined_step();
    __asm__ volatile("" ::: "memory");
}

#define WRITE(name, ...) failed |= gv_write_##name(writer, &(gv_##name##_record){__VA_ARGS__}) != GV_OK
#define TEXT(literal)    ((gv_text){literal, strlen(literal)})

static int write_trace(const char *path, bool wrong_build)
{
    gv_writer *writer;
    gv_error error = {0};
    if (gv_writer_create(path, &writer, &error) != GV_OK) {
        fprintf(stderr, "symbol_target: %s\n", error.text);
        return 1;
    }
    program own = {0};
    dl_iterate_phdr(first_object, &own);
    char executable[4096];
    ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
    executable[length > 0 ? length : 0] = '\0';
    uint64_t host[64];
    size_t used = 0;
    // The innermost frame is launch_kernel's own. Frames above main lie in libc and are left out: the test is about
    // this program's own lines.
    for (int i = 1; i < frame_count && i < 3; i++) {
        host[used++] = 1;
        host[used++] = (uint64_t)(uintptr_t)frames[i] - own.bias;
    }
    uint8_t wrong[20] = {0};
    bool failed = false;
    WRITE(process, .pid = (uint64_t)getpid(), .time_ns = 1, .executable = TEXT(executable),
          .command_line = TEXT("target"));
    WRITE(module, .id = 1, .path = TEXT(executable),
          .build_id = {wrong_build ? wrong : own.build_id, own.build_id_length});
    WRITE(stack, .id = 1, .host = {host, used});
    WRITE(graph, .id = 1, .origin = GV_GRAPH_CAPTURED, .nodes = 2, .stack = 1);
    WRITE(function, .id = 1, .name = TEXT("kernel"));
    WRITE(node, .graph = 1, .index = 0, .function = 1, .stack = 1, .order = 1);
    WRITE(node, .graph = 1, .index = 1, .function = 1, .stack = 1, .order = 2);
    WRITE(operation, .sequence = 1, .kind = GV_OP_INSTANTIATE, .object = 1);
    WRITE(exec, .id = 1, .graph = 1, .operation = 1);
    WRITE(operation, .sequence = 2, .kind = GV_OP_GRAPH_LAUNCH, .object = 1, .stack = 1);
    uint8_t written[] = {0x80, 0x20, 0x10}; // gap 4096, length 16
    for (uint64_t node = 0; node < 2; node++)
        WRITE(access, .launch = 2, .graph = 1, .node = node, .source = GV_SOURCE_SOFT,
              .writes = {written, sizeof written});
    WRITE(armed, .launch = 2, .exec = 1, .graph = 1);
    WRITE(end, .time_ns = 2, .operations = 2);
    failed |= gv_writer_close(writer) != GV_OK;
    return failed;
}

// As the recorder does: %p is the process id; without it only the first process has the name itself.
static int write_named(bool first, bool wrong_build)
{
    const char *pattern = getenv("GRAVEL_TRACE");
    char path[8192];
    if (!pattern)
        return 1;
    const char *place = strstr(pattern, "%p");
    if (place)
        snprintf(path, sizeof path, "%.*s%d%s", (int)(place - pattern), pattern, (int)getpid(), place + 2);
    else if (first)
        snprintf(path, sizeof path, "%s", pattern);
    else
        snprintf(path, sizeof path, "%s.%d.gravel", pattern, (int)getpid());
    return write_trace(path, wrong_build);
}

// Leaves a frame behind the trace of which only the beginning was written.
static int tear(const char *path)
{
    static const unsigned char torn[] = {0x28, 0xb5, 0x2f, 0xfd, 0x64, 0x00};
    FILE *file = fopen(path, "ab");
    return !file || fwrite(torn, sizeof torn, 1, file) != 1 || fclose(file) != 0;
}

// A child with a trace of its own that outlives this process, until somebody opens the FIFO "hold" for writing.
static int leave_child(void)
{
    int ends[2];
    char byte;
    if (pipe(ends) != 0)
        return 1;
    if (fork() == 0) {
        int failed = write_named(false, false);
        close(ends[0]);
        close(ends[1]);
        int hold = open("hold", O_RDONLY);
        _exit(failed || hold < 0);
    }
    close(ends[1]);
    return read(ends[0], &byte, 1) != 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    decode();
    int failed = write_named(true, strcmp(mode, "wrong-build") == 0);
    if (strcmp(mode, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(write_named(false, false));
        waitpid(child, NULL, 0);
    }
    if (strcmp(mode, "linger") == 0)
        failed |= leave_child();
    if (strcmp(mode, "tear") == 0)
        failed |= tear(getenv("GRAVEL_TRACE"));
    if (strcmp(mode, "delete") == 0)
        failed |= unlink(argv[0]) != 0;
    if (strcmp(mode, "exit") == 0)
        return 7;
    if (strcmp(mode, "die") == 0)
        abort();
    return failed;
}
