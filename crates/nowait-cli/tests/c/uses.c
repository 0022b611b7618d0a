// Uses files of the directory that is the first argument in several ways, and ends in the way that the second one says.
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIB (1 << 20)

static char *map(const char *name, size_t touched) {
    int fd = open(name, O_RDONLY);
    assert(fd >= 0);
    char *at = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE, fd, 0);
    assert(at != MAP_FAILED);
    close(fd);
    // Neighbours are not mapped with the page.
    madvise(at, 4 * MIB, MADV_RANDOM);
    assert(*(volatile char *)(at + touched) != 1);
    return at;
}

int main(int argc, char **argv) {
    assert(argc == 3);
    assert(chdir(argv[1]) == 0);
    static char buffer[100000];
    // Calls that move no position, as those of each stream in Python, are no reads.
    int asked = open("open", O_RDONLY);
    for (int n = 0; n < 3000; n++)
        assert(lseek(asked, 0, n % 2 ? SEEK_CUR : SEEK_SET) == 0);
    close(asked);
    map("mapped", MIB);
    munmap(map("unmapped", 2 * MIB), 4 * MIB);
    int fd = open("read", O_RDONLY);
    assert(read(fd, buffer, sizeof buffer) == sizeof buffer);
    close(fd);
    fd = open("./at", O_RDONLY);
    assert(pread(fd, buffer, 10, 2 * MIB) == 10);
    close(fd);
    // libuv closes files by number.
    fd = open("by_number", O_RDONLY);
    assert(read(fd, buffer, sizeof buffer) == sizeof buffer);
    assert(syscall(SYS_pread64, fd, buffer, 10, 2 * MIB) == 10);
    assert(syscall(SYS_close, fd) == 0);
    // With an offset, these calls move no position.
    fd = open("sent", O_RDONLY);
    FILE *sink = tmpfile();
    assert(sink);
    off_t offset = MIB;
    assert(sendfile(fileno(sink), fd, &offset, 10) == 10);
    offset = 2 * MIB;
    if (copy_file_range(fd, &offset, fileno(sink), NULL, 4096, 0) < 0) {
        // The other file is on a filesystem of another type.
        assert(errno == EXDEV);
        assert(sendfile(fileno(sink), fd, &offset, 4096) == 4096);
    }
    struct iovec vector = {buffer, 10};
    assert(preadv2(fd, &vector, 1, 3 * MIB, 0) == 10);
    fclose(sink);
    close(fd);
    fd = openat(AT_FDCWD, "sought", O_RDONLY);
    assert(read(fd, buffer, 10) == 10);
    assert(lseek(fd, 3 * MIB, SEEK_SET) == 3 * MIB);
    assert(read(fd, buffer, 4096) == 4096);
    close(fd);
    fd = open("duplicated", O_RDONLY);
    int other = dup(fd);
    close(fd);
    assert(read(other, buffer, sizeof buffer) == sizeof buffer);
    close(other);
    fd = open("replaced", O_RDONLY);
    assert(read(fd, buffer, sizeof buffer) == sizeof buffer);
    other = open("open", O_RDONLY);
    assert(dup2(other, fd) == fd);
    close(other);
    close(fd);
    FILE *stream = fopen("stream", "r");
    assert(getc(stream) != EOF);
    fclose(stream);
    fd = open("open", O_RDONLY);
    assert(read(fd, buffer, 4096) == 4096);
    struct stat stat_of;
    assert(stat("missing", &stat_of) == -1);
    assert(stat("small", &stat_of) == 0);
    assert(access("../accessed", R_OK) == -1);
    DIR *directory = opendir("listed");
    while (readdir(directory)) {
    }
    closedir(directory);
    for (int n = 0; n < 100; n++) {
        sprintf(buffer, "many/%d", n);
        stat(buffer, &stat_of);
    }
    // The same names, and the same descriptor, in another directory.
    for (int round = 0; round < 4; round++) {
        int opened = open(round % 2 ? "listed" : "many", O_RDONLY | O_DIRECTORY);
        fd = round < 2 ? opened : fcntl(opened, F_DUPFD, 50);
        int first = round % 2 ? 7 + round / 2 : 0;
        for (int n = first; n <= (round % 2 ? first : 40); n++) {
            sprintf(buffer, "%d", n);
            assert(fstatat(fd, buffer, &stat_of, 0) == 0);
        }
        close(opened);
        close(fd);
    }
    assert(chdir("listed") == 0);
    assert(stat("missing", &stat_of) == -1);
    assert(chdir("..") == 0);
    puts("done");
    fflush(stdout);
    switch (argv[2][0]) {
    case '_':
        _exit(0);
    case 'k':
        sleep(4);
        raise(SIGKILL);
        break;
    case 'x':
        execlp("true", "true", NULL);
        break;
    case 'e':
        execvp("true", (char *[]){"true", NULL});
        break;
    case 's':
        for (;;)
            pause();
    }
    return 0;
}
