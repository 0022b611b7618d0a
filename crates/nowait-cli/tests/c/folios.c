/* Prints the number of resident pages of a file that belong to a folio of several pages (pagemap in
   the kernel's documentation). Needs root. Exits with 3 if the kernel does not tell. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMPOUND_HEAD = 15, COMPOUND_TAIL = 16 };

int main(int argc, char **argv)
{
    int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    int kpageflags = open("/proc/kpageflags", O_RDONLY);
    struct stat stat;
    if (file < 0 || pagemap < 0 || kpageflags < 0 || fstat(file, &stat) != 0)
        return 3;
    size_t page = sysconf(_SC_PAGESIZE), pages = (stat.st_size + page - 1) / page, large = 0;
    volatile char *map = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        return 3;
    for (size_t n = 0; n < pages; n++) {
        uint64_t entry, flags;
        (void)map[n * page];
        off_t at = ((uintptr_t)map / page + n) * sizeof entry;
        if (pread(pagemap, &entry, sizeof entry, at) != sizeof entry)
            return 3;
        uint64_t frame = entry & ((1ULL << 55) - 1);
        if (frame == 0 || pread(kpageflags, &flags, sizeof flags, frame * sizeof flags) != sizeof flags)
            return 3;
        large += (flags >> COMPOUND_HEAD | flags >> COMPOUND_TAIL) & 1;
    }
    printf("%zu\n", large);
    return 0;
}
