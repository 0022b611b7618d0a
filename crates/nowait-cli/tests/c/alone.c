// A program that prints what it can notice of the process that has started it.
//   alone state              its IDs, limits, descriptors, signals, children
//   alone signals            counts the signals that it gets until it reads a line
//   alone group              the number of signals that it gets if it signals its process group once
//   alone wait               waits for a signal
//   alone terminal PROGRAM…  runs a program on a terminal, which closes when the program has printed a line
//   alone zombies            waits for a process that its child leaves behind, and counts those that nothing has reaped
//   alone children PROGRAM…  a child that ends while a program runs, which is to find it
//   alone child              finds that child
//   alone subreaper PROGRAM… runs a program as a subreaper
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t counts[65];

static void count(int signal)
{
    counts[signal]++;
}

static void handle(int signal)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(signal, &action, NULL);
}

static void print_file(const char *path, const char *prefix)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, prefix, strlen(prefix)))
            fputs(line, stdout);
    if (file)
        fclose(file);
}

static int state(void)
{
    printf("pid %d parent %d group %d session %d\n", getpid(), getppid(), getpgrp(), getsid(0));
    DIR *descriptors = opendir("/proc/self/fd");
    for (int fd = 0; fd < 1024; fd++)
        if (fd != dirfd(descriptors) && fcntl(fd, F_GETFD) >= 0)
            printf("descriptor %d\n", fd);
    closedir(descriptors);
    char directory[4096];
    printf("directory %s\n", getcwd(directory, sizeof directory));
    // Not SigQ, which counts the signals of all processes of the user.
    for (const char **prefix = (const char *[]){"SigP", "SigB", "SigI", "SigC", "Shd", "Seccomp", "NoNewPrivs", "Threads", "Umask", NULL};
         *prefix; prefix++)
        print_file("/proc/self/status", *prefix);
    print_file("/proc/self/limits", "Max");
    print_file("/proc/self/oom_score_adj", "");
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    printf("children: %ld KiB, %ld faults\n", usage.ru_maxrss, usage.ru_minflt);
    printf("wait: %d %s\n", waitpid(-1, NULL, WNOHANG | __WALL), strerror(errno));
    sigset_t pending;
    sigpending(&pending);
    for (int signal = 1; signal < 65; signal++)
        if (sigismember(&pending, signal) == 1)
            printf("pending %d\n", signal);
    return 0;
}

static int signals(void)
{
    for (int signal = 1; signal < 65; signal++)
        if (signal != SIGKILL && signal != SIGSTOP && signal != 32 && signal != 33)
            handle(signal);
    puts("ready");
    fflush(stdout);
    char line[16];
    while (!fgets(line, sizeof line, stdin) && errno == EINTR)
        clearerr(stdin);
    for (int signal = 1; signal < 65; signal++)
        if (counts[signal])
            printf("signal %d: %d\n", signal, counts[signal]);
    return 0;
}

static int group(void)
{
    handle(SIGUSR1);
    kill(0, SIGUSR1);
    usleep(100000);
    printf("signals %d\n", counts[SIGUSR1]);
    return 0;
}

static int terminal(char **words)
{
    int master, status;
    pid_t child = forkpty(&master, NULL, NULL, NULL);
    if (child == 0) {
        execvp(words[0], words);
        _exit(99);
    }
    char text[256];
    ssize_t len = read(master, text, sizeof text);
    close(master);
    waitpid(child, &status, 0);
    printf("%.*s ended by signal %d\n", len > 5 ? 5 : (int)len, text, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 0;
}

static int zombies_now(void)
{
    int found = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(processes));) {
        char path[300], line[300] = "";
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = atoi(entry->d_name) ? fopen(path, "r") : NULL;
        if (file && fgets(line, sizeof line, file) && strrchr(line, ')'))
            found += strrchr(line, ')')[2] == 'Z';
        if (file)
            fclose(file);
    }
    closedir(processes);
    return found;
}

static int zombies(void)
{
    int ends[2];
    char byte;
    if (pipe(ends) != 0)
        return 99;
    if (fork() == 0) {
        if (fork() == 0)
            usleep(50000);
        _exit(0);
    }
    wait(NULL);
    close(ends[1]);
    // The end of file: the orphan has ended. Process 1 then has minutes to wait for it.
    read(ends[0], &byte, 1);
    int found;
    for (int tries = 0; (found = zombies_now()) > 0 && tries < 3000; tries++)
        usleep(100000);
    printf("zombies %d\n", found);
    return 0;
}

static int children(char **words)
{
    // The child ends while the program is prepared or runs.
    if (fork() == 0) {
        usleep(1000);
        _exit(5);
    }
    execvp(words[0], words);
    return 99;
}

static int child(void)
{
    int status = 0;
    pid_t found = wait(&status);
    printf("child %d: %d, then %d\n", found > 0, WEXITSTATUS(status), wait(NULL));
    return 0;
}

static int subreaper(char **words)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    execvp(words[0], words);
    return 99;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "state"))
        return state();
    if (!strcmp(what, "signals"))
        return signals();
    if (!strcmp(what, "group"))
        return group();
    if (!strcmp(what, "zombies"))
        return zombies();
    if (!strcmp(what, "child"))
        return child();
    if (!strcmp(what, "wait")) {
        puts("ready");
        fflush(stdout);
        for (;;)
            pause();
    }
    if (!strcmp(what, "terminal"))
        return terminal(argv + 2);
    if (!strcmp(what, "children"))
        return children(argv + 2);
    if (!strcmp(what, "subreaper"))
        return subreaper(argv + 2);
    return 2;
}
