/* Prints the version of libnowait. */
#include <nowait.h>
#include <stdio.h>

int main(void)
{
    return printf("libnowait %s\n", nw_version()) < 0;
}
