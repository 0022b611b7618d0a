// Hides the control groups and executes a program. It has no children: their times would be inherited.
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argc;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL)) {
        perror("control groups cannot be hidden");
        return 125;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
