/* Reads a file at random places, with one thread and one local engine for each core, and prints the sum of the bytes and
 * the reads per second. Each engine keeps 32 reads in flight. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <nowait.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, IN_FLIGHT = 32, READS = 20000 };

static const char *path;
static atomic_ullong sum, failed;

static void add(const struct nw_completion *done, char (*bufs)[BLOCK])
{
    unsigned long long bytes = 0;
    if (done->result < 0) {
        atomic_fetch_add(&failed, 1);
        return;
    }
    for (int64_t i = 0; i < done->result; i++)
        bytes += (unsigned char)bufs[done->user_data][i];
    atomic_fetch_add(&sum, bytes);
}

static void *read_randomly(void *core)
{
    struct nw_engine_options options = {.size = sizeof options, .flags = NW_ENGINE_LOCAL, .depth = IN_FLIGHT};
    struct nw_completion done[IN_FLIGHT];
    struct nw_engine *engine;
    struct nw_file *file;
    unsigned seed = (unsigned)(size_t)core;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)core, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);

    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t blocks = fd < 0 ? 0 : lseek(fd, 0, SEEK_END) / BLOCK;
    char (*bufs)[BLOCK] = malloc(IN_FLIGHT * BLOCK);
    if (blocks == 0 || bufs == NULL || nw_engine_create(&options, &engine) < 0 || nw_file_open(fd, &file) < 0) {
        atomic_fetch_add(&failed, 1);
        return NULL;
    }
    unsigned free_bufs[IN_FLIGHT], free_count = IN_FLIGHT;
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        free_bufs[i] = i;
    for (int begun = 0, ended = 0; ended < READS;) {
        struct nw_op ops[IN_FLIGHT];
        unsigned count = 0;
        for (; free_count > 0 && begun < READS; begun++) {
            unsigned buf = free_bufs[--free_count];
            ops[count++] = (struct nw_op){.opcode = NW_OP_READ, .file = file, .addr = bufs[buf], .len = BLOCK,
                                          .offset = (uint64_t)(rand_r(&seed) % blocks) * BLOCK, .user_data = buf};
        }
        if (count > 0)
            nw_submit_batch(engine, ops, count);
        int n = nw_reap(engine, done, IN_FLIGHT, 1, NULL);
        for (int i = 0; i < n; i++) {
            add(&done[i], bufs);
            free_bufs[free_count++] = (unsigned)done[i].user_data;
        }
        ended += n;
    }
    nw_file_close(file);
    nw_engine_destroy(engine);
    free(bufs);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[1024];
    struct timespec start, end;
    if (argc != 2) {
        fprintf(stderr, "usage: per_core FILE\n");
        return 2;
    }
    path = argv[1];
    if (cores > 1024)
        cores = 1024;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long core = 0; core < cores; core++)
        if (pthread_create(&threads[core], NULL, read_randomly, (void *)core) != 0)
            return 1;
    for (long core = 0; core < cores; core++)
        pthread_join(threads[core], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    printf("%.0f reads per second on %ld cores; the sum of all bytes is %llu\n", (double)cores * READS / seconds, cores,
           atomic_load(&sum));
    return atomic_load(&failed) > 0;
}
