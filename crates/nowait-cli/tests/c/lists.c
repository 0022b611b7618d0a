/* Prints how many names and regular files a directory has. Compiled for each kind of program that exists; see run_foreign.rs. */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

int main(int count, char **words)
{
	const char *path = count > 1 ? words[1] : ".";
	DIR *directory = opendir(path);
	struct dirent *entry;
	int names = 0, files = 0;
	while (directory && (entry = readdir(directory))) {
		char name[4096];
		struct stat stat_of;
		snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
		names++;
		files += stat(name, &stat_of) == 0 && S_ISREG(stat_of.st_mode);
	}
	if (directory)
		closedir(directory);
	fprintf(stderr, "%s has names\n", path);
	printf("%d names, %d files\n", names, files);
	return 7;
}
