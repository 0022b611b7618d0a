// A C++ exception goes through nftw(3), out of the callback of the program.
#include <cstdio>
#include <ftw.h>
#include <stdexcept>
#include <string>

struct Guard {
	const char *name;
	~Guard() { std::printf("destroyed: %s\n", name); }
};

static int seen;

static int throwing(const char *, const struct stat *, int, struct FTW *place)
{
	Guard guard{"in the callback"};
	if (place->level == 1)
		throw std::runtime_error("from the callback");
	return 0;
}

static int counting(const char *, const struct stat *, int, struct FTW *)
{
	seen++;
	return 0;
}

static int catching(const char *, const struct stat *, int, struct FTW *place)
{
	seen++;
	if (place->level != 1)
		return 0;
	try {
		nftw("tree/d1", throwing, 4, FTW_PHYS);
	} catch (const std::exception &) {
		seen += 1000;
	}
	return 0;
}

int main()
{
	for (int i = 0; i < 3; i++) {
		try {
			Guard guard{"in main"};
			nftw("tree", throwing, 8, FTW_PHYS);
			std::puts("not thrown");
		} catch (const std::exception &e) {
			std::printf("caught: %s\n", e.what());
		}
		seen = 0;
		int result = nftw("tree", counting, 8, FTW_PHYS);
		std::printf("%d %d\n", result, seen);
	}
	seen = 0;
	int result = nftw("tree", catching, 8, FTW_PHYS);
	std::printf("%d %d\n", result, seen);
}
