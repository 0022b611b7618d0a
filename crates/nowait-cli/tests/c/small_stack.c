// Prints how many bytes of a signal handler's stack each call uses. The argument is a large file. The program is linked with -z now: ld.so(8) needs
// no stack to find a function.
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 1 << 17, PAINT = 0xa5 };

static unsigned char *stack;
static int fd;
// A descriptor of the large file, at an offset of 4 MiB.
static int wide;
static char buffer[100];
static struct stat status;
static void *mapped;
static const char *large;
static int copy;
static DIR *directory;

static void nothing(void) {}
static void opens(void) { assert(open("/etc/passwd", O_RDONLY) >= 0); }
static void opens_large(void) { assert(open(large, O_RDONLY) >= 0); }
static void opens_directory(void) { assert(open("/etc", O_RDONLY | O_DIRECTORY) >= 0); }
static void reads_at_offset(void) { assert(pread(fd, buffer, 10, 10) == 10); }
static void reads_far(void) { assert(read(wide, buffer, 10) == 10); }
static void reads_far_at_offset(void) { assert(pread(wide, buffer, 10, 5 << 20) == 10); }
static void maps_far(void) { assert(mmap(NULL, 8 << 20, PROT_READ, MAP_PRIVATE, wide, 0) != MAP_FAILED); }
static void renames(void) { assert(rename("/missing/file", "/missing/other") == -1); }
static void seeks(void) { assert(lseek(fd, 50, SEEK_SET) == 50); }
static void closes(void) { assert(close(fd) == 0); }
static void duplicates(void) { assert(dup(fd) >= 0); }
static void stats(void) { assert(stat("/missing/of-a-handler", &status) == -1); }
static void looks_up(void) { assert(access("/missing/another", R_OK) == -1); }
static void looks_up_below(void) { assert(access("missing/of-a-handler", R_OK) == -1); }
static void moves(void) { assert(chdir("/etc") == 0); }
static void maps(void) { assert(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED); }
static void unmaps(void) { assert(munmap(mapped, 4096) == 0); }
// The files may be on two filesystems.
static void copies(void) { copy_file_range(fd, NULL, copy, NULL, 9 << 20, 0); }
static void replaces(void) { assert(dup2(copy, fd) == fd); }
static void closes_range(void) { assert(close_range((unsigned)fd, (unsigned)fd, 0) == 0); }
static void lists(void) { assert(readdir(directory) != NULL); }
static void executes_list(void) { assert(execl("/missing/program", "", (char *)NULL) == -1); }
static void executes(void) {
    char *arguments[] = {"", NULL};
    assert(execv("/missing/program", arguments) == -1);
}

static const struct {
    const char *name;
    void (*call)(void);
} CALLS[] = {
    {"nothing", nothing},
    {"open", opens},
    {"open a large file", opens_large},
    {"open a directory", opens_directory},
    {"pread", reads_at_offset},
    {"read of a window", reads_far},
    {"pread of a window", reads_far_at_offset},
    {"mmap of windows", maps_far},
    {"rename", renames},
    {"lseek", seeks},
    {"close", closes},
    {"dup", duplicates},
    {"stat", stats},
    {"access", looks_up},
    {"access below", looks_up_below},
    {"chdir", moves},
    {"mmap", maps},
    {"execv", executes},
    {"execl", executes_list},
    {"munmap", unmaps},
    {"copy_file_range", copies},
    {"dup2", replaces},
    {"close_range", closes_range},
    {"readdir", lists},
};

static void (*call)(void);

static void handle(int number) {
    (void)number;
    call();
}

int main(int argc, char **argv) {
    assert(argc == 2);
    large = argv[1];
    stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(stack != MAP_FAILED);
    stack_t other = {.ss_sp = stack, .ss_size = SIZE};
    assert(sigaltstack(&other, NULL) == 0);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    assert(sigaction(SIGUSR1, &action, NULL) == 0);
    copy = open(".", O_TMPFILE | O_RDWR, 0600);
    if (copy < 0)
        copy = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    for (size_t at = 0; at < sizeof CALLS / sizeof *CALLS; at++) {
        fd = open("/etc/passwd", O_RDONLY);
        assert(fd >= 0);
        assert(read(fd, buffer, 1) == 1);
        mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        wide = open(large, O_RDONLY);
        assert(lseek(wide, 4 << 20, SEEK_SET) == 4 << 20);
        directory = opendir("/etc");
        call = CALLS[at].call;
        memset(stack, PAINT, SIZE);
        raise(SIGUSR1);
        size_t left = 0;
        while (stack[left] == PAINT)
            left++;
        printf("%zu %s\n", SIZE - left, CALLS[at].name);
    }
    fflush(stdout);
    _exit(7);
}
