// Uses files in a signal handler that has a small stack, and ends there.
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static int fd;

static void handle(int number) {
    (void)number;
    static char buffer[100];
    assert(pread(fd, buffer, 10, 10) == 10);
    assert(lseek(fd, 50, SEEK_SET) == 50);
    assert(read(fd, buffer, 10) == 10);
    assert(close(fd) == 0);
    assert(access("missing/of-a-handler", R_OK) == -1);
    assert(access("/missing/of-a-handler", R_OK) == -1);
    execl("/missing/of-a-handler", "", NULL);
    _exit(7);
}

int main(void) {
    // The kernel needs one half, and ld.so(8) about as much to find a function.
    size_t size = 2 * sysconf(_SC_MINSIGSTKSZ) + 1024;
    char *memory = mmap(NULL, size + (1 << 16), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(memory != MAP_FAILED);
    assert(mprotect(memory, 1 << 16, PROT_NONE) == 0);
    stack_t stack = {.ss_sp = memory + (1 << 16), .ss_size = size};
    assert(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    assert(sigaction(SIGUSR1, &action, NULL) == 0);
    fd = open("/etc/passwd", O_RDONLY);
    assert(fd >= 0);
    char byte;
    assert(read(fd, &byte, 1) == 1);
    raise(SIGUSR1);
}
