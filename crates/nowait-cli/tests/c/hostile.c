// A program that writes what it likes into the channel of `nowait run`, and others that are hard to follow.
//   hostile marks         the marks of all slots, and ends
//   hostile number        the number of events
//   hostile random        random words everywhere, and bursts of events with random words, for a second
//   hostile random on     the same for ten minutes
//   hostile events PATH…  an event of each kind for each path, of this process, of its parent and of process 1
//   hostile scan DIR      a child that lists a directory; the program does not wait for it
//   hostile signals HOW PROGRAM…  sets signals 32 and 33 to SIG_DFL (0) or SIG_IGN (1), and runs a program
// It ends with status 7.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// As in crates/nowait-ahead-channel: a mark and 39 words, in cache lines. Claims follow the slots. The compiler is told the number
// of KINDS.
enum { SLOTS = 4096, WORDS = 39, HEADER = 7, SLOT = 320, HEAD = 64, CLAIMS = 8 << 14 };

static uint8_t *memory;
static size_t size;

static void attach(void)
{
    const char *const names[] = {"NOWAIT_LEARN_CHANNEL", "NOWAIT_SURVEY_CHANNEL", "NOWAIT_AHEAD_CHANNEL"};
    const char *value = NULL;
    for (unsigned n = 0; n < 3 && !value; n++)
        value = getenv(names[n]);
    char path[256];
    if (!value || strlen(value) >= sizeof path)
        exit(1);
    strcpy(path, value);
    *strrchr(path, ':') = 0;
    int fd = open(path, O_RDWR);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat))
        exit(1);
    size = stat.st_size;
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED || size < CLAIMS + (size_t)SLOTS * SLOT)
        exit(1);
}

static uint64_t *slot(uint64_t number)
{
    return (uint64_t *)(memory + size - CLAIMS - (size_t)SLOTS * SLOT + number % SLOTS * SLOT);
}

static uint64_t *head(void)
{
    return (uint64_t *)(memory + HEAD);
}

static uint64_t any(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// Tells of an event as the library does.
static void tell(const uint64_t *words)
{
    uint64_t number = __atomic_fetch_add(head(), 1, __ATOMIC_RELAXED), *to = slot(number);
    memcpy(to + 1, words, WORDS * 8);
    __atomic_store_n(to, 2 * number + 2, __ATOMIC_RELEASE);
}

static void event(unsigned kind, uint64_t pid, const char *path)
{
    uint64_t words[WORDS] = {0};
    size_t length = strlen(path);
    words[0] = kind | (uint64_t)length << 8 | pid << 32;
    words[1] = UINT32_MAX;
    memcpy(words + HEADER, path, length < 256 ? length : 256);
    tell(words);
}

static void random_words(time_t seconds)
{
    for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
        switch (any() % 4) {
        case 0:
            ((uint64_t *)memory)[any() % (size / 8)] = any();
            break;
        case 1:
            *head() = any() % 3 ? *head() + any() % 9000 : any();
            break;
        case 2:
            *slot(any()) = any() % 2 ? any() : UINT64_MAX;
            break;
        default:
            for (unsigned n = 0; n < 100; n++) {
                uint64_t words[WORDS];
                for (unsigned w = 0; w < WORDS; w++)
                    words[w] = any() >> any() % 64;
                words[0] = any() % KINDS | any() % 257 << 8 | (uint64_t)getpid() << 32;
                if (any() % 2)
                    memcpy(words + HEADER, "/tmp/", 5);
                words[1] = any() % 4 ? UINT32_MAX : any() % 8;
                tell(words);
            }
        }
    }
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "signals")) {
        uint64_t action[8] = {strtoul(words[2], NULL, 10)};
        for (int number = 32; number < 34; number++)
            if (syscall(SYS_rt_sigaction, number, action, NULL, 8))
                return 1;
        execvp(words[3], words + 3);
        return 1;
    }
    if (!strcmp(what, "scan")) {
        if (fork() == 0) {
            struct dirent **list;
            scandir(words[2], &list, NULL, alphasort);
            _exit(0);
        }
        usleep(300000);
        return 7;
    }
    attach();
    if (!strcmp(what, "marks")) {
        for (unsigned n = 0; n < SLOTS; n++)
            *slot(n) = UINT64_MAX;
        usleep(100000);
    } else if (!strcmp(what, "number")) {
        *head() = UINT64_MAX;
        usleep(100000);
    } else if (!strcmp(what, "random")) {
        random_words(count > 2 ? 600 : 2);
    } else if (!strcmp(what, "events")) {
        uint64_t pids[] = {getpid(), getppid(), 1};
        for (int n = 2; n < count; n++)
            for (unsigned pid = 0; pid < 3; pid++)
                for (unsigned kind = 0; kind < 8 * KINDS; kind++)
                    event(kind % KINDS, pids[pid], words[n]);
        usleep(500000);
    }
    return 7;
}
