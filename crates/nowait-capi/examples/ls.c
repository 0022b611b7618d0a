/* ls -l of a directory, in the order of the names: every entry with its metadata, from one scan. */
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <time.h>

static void print_mode(unsigned mode)
{
    static const char types[] = "?pc?d?b?-?l?s???";
    char text[] = "?rwxrwxrwx";
    text[0] = types[mode >> 12 & 15];
    for (int bit = 0; bit < 9; bit++)
        if (!(mode & (0400u >> bit)))
            text[bit + 1] = '-';
    fputs(text, stdout);
}

static int print(const struct nw_dirent *entry, void *data)
{
    const struct statx *stat = nw_dirent_statx(entry);
    char date[32] = "?";
    (void)data;
    if (stat == NULL) {
        /* The entry was removed since, or its inode cannot be read. */
        fprintf(stderr, "ls: %s: %s\n", nw_dirent_name(entry), nw_strerror(entry->stat_error));
        return 0;
    }
    time_t changed = (time_t)stat->stx_mtime.tv_sec;
    struct tm *local = localtime(&changed);
    if (local != NULL)
        strftime(date, sizeof date, "%Y-%m-%d %H:%M", local);
    print_mode(stat->stx_mode);
    printf(" %3u %5u %5u %10llu %s %s\n", stat->stx_nlink, stat->stx_uid, stat->stx_gid,
           (unsigned long long)stat->stx_size, date, nw_dirent_name(entry));
    return 0;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : ".";
    struct nw_scan_options options = {
        .size = sizeof options, .mask = STATX_BASIC_STATS, .flags = NW_SCAN_SORT_NAME};
    struct nw_scan *scan;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        perror(path);
        return 1;
    }
    int said = nw_scan_open(dir, &options, &scan);
    if (said == 0) {
        said = nw_scan_each(scan, print, NULL);
        nw_scan_close(scan);
    }
    if (said < 0)
        fprintf(stderr, "ls: %s: %s\n", path, nw_strerror(said));
    return said < 0;
}
