//! Small programs print the same alone and in each mode of `nowait run`.
//!
//! The manual page has the exceptions. The environment has LD_PRELOAD and names that begin with NOWAIT_.
//! `--keep-cache` may start the program in another control group. Other processes open and read the files.
//! Process 1 of a PID namespace is `nowait run`. Its messages begin with "nowait: ".

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitStatus};

use crate::alone::{Alone, MODES, without_groups};
use crate::program::{open_directory, run};

/// A small program.
struct Small {
    name: &'static str,
    /// A program that the test needs, beside a shell and Python.
    needs: &'static str,
    /// Shell commands before `nowait run` is executed in the shell's place.
    before: &'static str,
    /// The interpreter and its option.
    by: [&'static str; 2],
    program: &'static str,
}

/// Not a script that looks for the version of a user.
const PYTHON: &str = "/usr/bin/python3";

const fn sh(name: &'static str, before: &'static str, program: &'static str) -> Small {
    Small {
        name,
        needs: "sh",
        before,
        by: ["sh", "-c"],
        program,
    }
}

const fn python(name: &'static str, program: &'static str) -> Small {
    Small {
        name,
        needs: PYTHON,
        before: "",
        by: [PYTHON, "-c"],
        program,
    }
}

impl Small {
    const fn with(mut self, needs: &'static str) -> Small {
        self.needs = needs;
        self
    }

    /// Runs it in a new directory. Returns its status, its output and its messages.
    fn said(&self, alone: &Alone, mode: &[&str], outer: &[&str]) -> (ExitStatus, String, String) {
        let place = open_directory();
        let anyone = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(place.path(), anyone).unwrap();
        let before = format!("{}\nexec \"$@\"", self.before);
        let before = [outer, &["sh", "-c", &before, "sh"]].concat();
        let mut command = alone.command(mode, &before, &[self.by[1], self.program]);
        let said = run(command.current_dir(place.path()));
        let own = |line: &&str| !line.starts_with("nowait: ");
        let err: Vec<&str> = said.err.lines().filter(own).collect();
        (said.status, said.text().to_owned(), err.join("\n"))
    }
}

fn same(programs: &[Small]) {
    for small in programs {
        if Command::new(small.needs).arg("--version").output().is_err() {
            slowdisk::skip_or_fail(format!("{} is missing", small.needs));
            continue;
        }
        let alone = Alone::named(small.by[0]);
        eprintln!("{}", small.name);
        let expected = small.said(&alone, MODES[0], &[]);
        assert_ne!(expected.1, "", "{}: {expected:?}", small.name);
        for mode in &MODES[1..] {
            let said = small.said(&alone, mode, &[]);
            assert_eq!(said, expected, "{}, {mode:?}", small.name);
        }
        if rustix::process::geteuid().is_root() {
            let said = small.said(&alone, &["--keep-cache"], &[without_groups()]);
            assert_eq!(said, expected, "{}, surveys", small.name);
        }
    }
}

#[test]
fn what_a_program_inherits() {
    same(&[
        sh(
            "masks and dispositions",
            "trap '' HUP USR1 PIPE",
            "grep -E 'Sig(Pnd|Blk|Ign|Cgt)|ShdPnd' /proc/self/status",
        ),
        sh(
            "limits",
            "ulimit -n 77; ulimit -c 0; ulimit -f 1000; ulimit -S -s 4096; ulimit -l 100; ulimit -t 1000",
            "cat /proc/self/limits",
        ),
        sh(
            "descriptors",
            "exec 5</etc/passwd 7>out 9</etc 3<&-",
            "ls -1 /proc/$$/fd; grep -h -E 'pos|flags' /proc/$$/fdinfo/[57]",
        ),
        sh(
            "standard descriptors that are closed",
            "exec <&- 2>&-",
            "ls -1 /proc/$$/fd",
        ),
        sh(
            "a file mode mask and a directory",
            "umask 027; mkdir inner; cd inner",
            "umask; touch made; stat -c %a made; basename \"$PWD\"; readlink /proc/self/cwd | xargs basename",
        ),
        sh(
            "priorities",
            "renice -n 5 $$ >/dev/null; ionice -c 3 -p $$; taskset -p -c 0 $$ >/dev/null; chrt --batch -p 0 $$",
            "nice; ionice; grep Cpus_allowed_list /proc/self/status; chrt -p $$ | sed s/$$/PID/; chrt -p $$ | wc -l",
        ),
        sh(
            "the choice of processes that a memory shortage ends",
            "echo 500 >/proc/$$/oom_score_adj",
            "cat /proc/self/oom_score_adj; grep -E '^(CoreDumping|THP_enabled|NoNewPrivs|Seccomp)' /proc/self/status",
        ),
        sh(
            "users and capabilities",
            "",
            "grep -E '^(Uid|Gid|Groups|Cap|NoNew|FDSize|Umask|State|Threads|NSpid):' /proc/self/status | sed 's/NSpid.*/one/'",
        ),
        sh(
            "a signal for the death of the parent",
            "[ \"$(command -v setpriv)\" ] || exit; [ $1 = setpriv ] || exec setpriv --pdeathsig USR2 sh -c 'exec \"$@\"' sh \"$@\"",
            "echo it runs; setpriv --dump | grep -i signal",
        ),
        sh(
            "words, names and the environment",
            "export Z=1; unset Y; set -- env -u LC_ALL \"$@\"",
            "tr '\\0' ' ' </proc/$$/cmdline | cut -c 1-5; cat /proc/$$/comm; \
             env | cut -d= -f1 | grep -v -E '^(LD_PRELOAD|NOWAIT_.*|_)$' | sort",
        ),
        sh(
            "an alarm",
            "set -- /usr/bin/python3 -c 'import signal, os, sys; signal.alarm(300); os.execvp(sys.argv[1], sys.argv[1:])' \"$@\"",
            "exec /usr/bin/python3 -c 'import signal, time
print(\"an alarm is set:\", 0 < signal.alarm(1), flush=True)
time.sleep(60); print(\"it has not come\")'",
        ),
        sh(
            "a socket of systemd",
            "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=x; exec 3</etc/passwd",
            "[ $LISTEN_PID = $$ ] && echo for this process; head -c 4 <&3",
        ),
        sh(
            "a session",
            "[ \"$S\" ] || S=1 exec setsid --wait sh -c 'exec \"$@\"' sh env S=1 \"$@\"",
            "[ $(ps -o sid= -p $$) = $(ps -o pgid= -p $$) ] && echo a session; ps -o tty= -p $$",
        ),
        sh(
            "another personality",
            "set -- setarch --addr-no-randomize \"$@\"",
            "cat /proc/self/personality",
        ),
        sh(
            "control groups",
            "",
            "grep -v -E '^0::|memory' /proc/self/cgroup; cat /proc/self/cpuset 2>/dev/null; echo all",
        ),
        sh(
            "processes that run beside it",
            "sleep 60 & echo $! >beside; until grep -q sleep /proc/$!/comm; do :; done",
            "ps -o comm= --ppid $$ | grep -c sleep; kill $(cat beside); wait; echo ended",
        ),
    ]);
}

#[test]
fn how_a_program_ends() {
    same(&[
        sh("a status", "", "echo 7; exit 7"),
        sh("a status of 255", "", "echo 255; exit 255"),
        sh("a signal", "", "echo SEGV; kill -SEGV $$"),
        sh("another signal", "", "echo KILL; kill -KILL $$"),
        sh("a real-time signal", "", "echo 40; kill -40 $$"),
        sh("a broken pipe", "", "echo begin; yes | head -n 1"),
        sh(
            "a processor limit",
            "ulimit -t 1",
            "echo begin; exec >/dev/null; while :; do :; done",
        ),
        sh(
            "a limit of file sizes",
            "ulimit -f 8",
            "echo begin; head -c 100000 /dev/zero >large; echo $?; stat -c %s large",
        ),
        sh(
            "the times of children",
            "",
            "awk '{ print $16, $17 }' /proc/$$/stat",
        ),
        sh(
            "the rest of the standard input",
            "printf 'one\\ntwo\\nthree\\n' >in; exec <in",
            "read line; echo $line; cat",
        ),
        sh(
            "a file descriptor that stays behind",
            "",
            "(sleep 3; echo late) & echo early",
        ),
        python(
            "functions that are called at exit",
            "import atexit, os, sys\natexit.register(lambda: print('last'))\nprint('first')\nos.read(os.open('/etc/passwd', 0), 9)\nsys.exit(3)",
        ),
        sh("an empty program", "", "echo; exec true"),
        sh(
            "a program that is missing",
            "",
            "echo; exec /nowhere/program",
        ),
    ]);
}

#[test]
fn files_and_their_locks() {
    same(&[
        sh(
            "a lock that is inherited",
            "exec 9>lock; flock 9",
            "flock -n lock true || echo locked; exec 9>&-; flock -n lock true && echo free",
        ),
        python(
            "locks of a process stay until it closes the file",
            "import fcntl, os, struct
f = open('lock', 'w+'); f.write('x' * 9000); f.flush()
fcntl.lockf(f, fcntl.LOCK_EX)
os.stat('lock'); os.listdir('.'); os.access('lock', os.R_OK)
for _ in range(3): os.pread(f.fileno(), 4096, 4096)
if os.fork() == 0:
    try: fcntl.lockf(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB); print('free', flush=True)
    except OSError as e: print(e.errno, flush=True)
    os._exit(0)
os.wait()
print(fcntl.fcntl(f, fcntl.F_GETFD), fcntl.fcntl(f, fcntl.F_GETFL), f.tell(), os.lseek(f.fileno(), 0, 1))",
        ),
        python(
            "leases",
            "import fcntl, os, signal
signal.signal(signal.SIGIO, lambda *_: print('broken', flush=True))
f = os.open('leased', os.O_RDWR | os.O_CREAT)
os.write(f, b'x' * 100000)
for kind in fcntl.F_RDLCK, fcntl.F_WRLCK:
    try: print(kind, fcntl.fcntl(f, fcntl.F_SETLEASE, kind), fcntl.fcntl(f, fcntl.F_GETLEASE))
    except OSError as e: print(kind, e.errno)
os.pread(f, 100000, 0); os.listdir('.'); os.stat('leased')
print(fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK))",
        ),
        python(
            "notifications of changes",
            "import ctypes, os, struct
c = ctypes.CDLL(None, use_errno=True)
i = c.inotify_init1(os.O_NONBLOCK)
# Not IN_ACCESS, IN_OPEN, IN_CLOSE_NOWRITE: other processes may read the files.
c.inotify_add_watch(i, b'.', 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200)
for n in range(5):
    with open(f'a{n}', 'w') as f: f.write('x' * 5000)
    open(f'a{n}').read(); os.chmod(f'a{n}', 0o600); os.rename(f'a{n}', f'b{n}'); os.link(f'b{n}', f'c{n}')
    os.unlink(f'b{n}')
    os.unlink(f'c{n}')
events = os.read(i, 1 << 16)
while events:
    _, mask, _, size = struct.unpack_from('iIII', events)
    print(hex(mask), events[16:16 + size].rstrip(b'\\0').decode()); events = events[16 + size:]",
        ),
        python(
            "names, sizes, holes and attributes",
            "import os
f = os.open('f', os.O_RDWR | os.O_CREAT, 0o640)
os.ftruncate(f, 1 << 40); os.pwrite(f, b'y' * 10, 1 << 39)
print(os.lseek(f, 0, os.SEEK_DATA), os.lseek(f, 0, os.SEEK_HOLE), os.read(f, 5), os.lseek(f, 0, 1))
s = os.stat('f'); print(s.st_size, s.st_blocks, oct(s.st_mode), s.st_nlink)
os.rename('f', 'g'); os.link('g', 'h'); os.symlink('h', 'i'); os.unlink('g')
print(sorted(os.listdir('.')), os.readlink('i'), os.stat('i').st_nlink, os.fstat(f).st_nlink)
os.unlink('h')
try: os.stat('i')
except OSError as e: print(e.errno)
print(os.fstat(f).st_nlink, os.path.basename(os.readlink(f'/proc/self/fd/{f}')))",
        ),
        python(
            "times of a file that it reads",
            "import os, time
open('f', 'w').write('x' * 100000)
os.utime('f', (1, 2))
a = os.stat('f'); os.listdir('.')
f = os.open('f', os.O_RDONLY | os.O_NOATIME); os.read(f, 10); os.close(f)
b = os.stat('f'); print(b.st_atime, b.st_mtime, a.st_ctime == b.st_ctime)",
        ),
        python(
            "the lowest descriptor",
            "import os
print(*[os.open('/etc/passwd', 0) for _ in range(5)]); os.close(4); os.listdir('/etc'); print(os.open('/etc/group', 0))
print(os.dup(0)); os.closerange(3, 100); print(os.open('/', 0), os.open('/etc', 0)); r, w = os.pipe(); print(r, w)",
        ),
        python(
            "descriptors in a message",
            "import os, socket, array
a, b = socket.socketpair()
f = os.open('/etc/passwd', 0)
socket.send_fds(a, [b'x'], [f, f]); print(socket.recv_fds(b, 1, 4)[:2])
d = os.open('/proc/self/fd', 0); print(len(os.listdir(d)))",
        ),
    ]);
}

#[test]
fn processes_and_threads() {
    same(&[
        python(
            "ways to start a program",
            "import os, subprocess, pty
print(subprocess.run(['echo', 'run'], capture_output=True)); print(os.system('exit 3'), os.popen('echo popen').read())
p = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 4'], os.environ); print(os.waitpid(p, 0)[1])
p = os.fork()
if p == 0: os.execlp('sh', 'sh', '-c', 'exit 5')
print(os.waitpid(p, 0)[1], subprocess.run(['sh', '-c', 'echo $0'], close_fds=True, env={}).returncode)
try: os.execv('/etc/passwd', ['x'])
except OSError as e: print(e.errno)
try: os.wait()
except OSError as e: print(e.errno)",
        ),
        python(
            "a limit of processes",
            "import os, resource, signal
if os.geteuid() == 0: os.setgid(54321); os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))
n = []
try:
    while len(n) < 100:
        p = os.fork()
        if p == 0: signal.pause()
        n.append(p)
except OSError as e: print(e.errno)
if os.geteuid() == 54321: print(len(n))
for p in n: os.kill(p, 9); os.waitpid(p, 0)",
        ),
        python(
            "a limit of descriptors",
            "import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
n = 0
try:
    while True: os.open('/etc/passwd', 0); n += 1
except OSError as e: print(n, e.errno)
try: os.listdir('/etc')
except OSError as e: print(e.errno)",
        ),
        python(
            "a limit of locked memory",
            "import ctypes, mmap, resource
c = ctypes.CDLL(None, use_errno=True)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 16, 1 << 16))
m = mmap.mmap(-1, 1 << 20); a = ctypes.addressof(ctypes.c_char.from_buffer(m))
open('f', 'w').write('x' * 100000); open('f').read()
import os
if os.geteuid() == 0: os.setuid(54321)
print(c.mlock(ctypes.c_void_p(a), 1 << 16), c.munlock(ctypes.c_void_p(a), 1 << 16), c.mlock(ctypes.c_void_p(a), (1 << 16) + 4096))",
        ),
        python(
            "many threads that read, and a process that forks",
            "import os, threading
open('f', 'w').write('x' * 50000)
def use():
    for _ in range(50): assert len(open('f').read()) == 50000; os.listdir('.'); os.stat('f')
t = [threading.Thread(target=use) for _ in range(8)]
[x.start() for x in t]
for _ in range(10):
    p = os.fork()
    if p == 0: os._exit(len(open('f').read()) != 50000)
    print(os.waitpid(p, 0)[1])
[x.join() for x in t]
# A thread that was joined may still be ending.
while len(os.listdir('/proc/self/task')) > 1: pass
print('one thread')",
        ),
        python(
            "strict seccomp(2)",
            "import ctypes, os
c = ctypes.CDLL(None)
open('f', 'w').write('hello'); f = os.open('f', 0)
p = os.fork()
if p == 0:
    b = ctypes.create_string_buffer(5)
    read, write, call = c.read, c.write, c.syscall
    one, five = ctypes.c_int(1), ctypes.c_size_t(5)
    c.prctl(22, 1, 0, 0, 0)
    read(f, b, five); write(one, b, five); call(60, 0)
print(os.waitpid(p, 0)[1])",
        ),
        python(
            "signals while files are read",
            "import os, signal
n = [0]
def count(*_): n[0] += 1
signal.signal(signal.SIGALRM, count); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
open('f', 'w').write('x' * 10000)
while n[0] < 100: assert len(open('f').read()) == 10000; os.listdir('.')
signal.setitimer(signal.ITIMER_REAL, 0); print('done', signal.getitimer(signal.ITIMER_REAL))",
        ),
        sh(
            "strace(1)",
            "",
            "strace -f -qq -o /dev/null sh -c 'ls -d /etc; cat /etc/hostname | wc -l; exit 9'; echo $?",
        )
        .with("strace"),
        sh(
            "an empty environment, and a static program",
            "",
            "env -i /bin/sh -c 'cat /etc/passwd | wc -l'; busybox ls -d /etc",
        )
        .with("busybox"),
        python(
            "a terminal and the control of jobs",
            "import os, pty
p, t = pty.fork()
if p == 0: os.environ.update(PS1='ready ', LC_ALL='C'); os.execvp('bash', ['bash', '--norc', '--noediting', '-i'])
said = b''
def until(text):
    global said
    while text not in said: said += os.read(t, 1000)
    said = said[said.index(text) + len(text):]
def type(line, *all):
    os.write(t, line)
    for text in all + (b'ready ',): until(text); print(text)
until(b'ready ')
type(b'stty -echo; echo on-$((1 + 1))\\n', b'on-2')
type(b'(kill -TSTP $BASHPID; exit 3)\\n', b'Stopped')
type(b'jobs\\n', b'Stopped')
type(b'fg; echo status $?\\n', b'status 3')
os.write(t, b'sh -c \"echo up; exec sleep 1000\"\\n'); until(b'up'); type(b'\\x1a', b'Stopped')
type(b'bg; kill %1; wait %1; echo status $?\\n', b'status 143')
os.write(t, b'sh -c \"echo up; exec sleep 1000\"\\n'); until(b'up'); type(b'\\x03'); type(b'echo status $?\\n', b'status 130')
os.write(t, b'exit 6\\n'); print(os.waitpid(p, 0)[1])",
        ),
    ]);
}

#[test]
fn root_namespaces_and_mounts() {
    if !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("not root");
    }
    same(&[
        sh(
            "a filesystem that is mounted, used and unmounted",
            "set -- unshare --mount \"$@\"",
            "mkdir m; mount -t tmpfs none m; head -c 100000 /dev/zero >m/f; cat m/f | wc -c; ls -R m; umount m; echo $?",
        ),
        sh(
            "a user namespace in the program",
            "",
            "unshare --user --map-root-user sh -c 'id -u; cat /etc/passwd | wc -l; ls -d /etc'",
        ),
        sh(
            "another root directory",
            "",
            "mkdir -p r/bin; cp $(command -v busybox) r/bin/; chroot r /bin/busybox ls /; chroot r /bin/busybox cat /bin/busybox | wc -l",
        )
        .with("busybox"),
        sh(
            "another user",
            "",
            "setpriv --reuid 54322 --regid 54322 --clear-groups sh -c 'id -u; cat /etc/shadow; ls -d /etc; wc -l </etc/passwd'",
        ),
        sh(
            "no new privileges",
            "set -- setpriv --no-new-privs \"$@\"",
            "grep NoNewPrivs /proc/self/status; cat /etc/passwd | wc -l",
        ),
        sh(
            "fewer capabilities",
            "set -- setpriv --bounding-set=-sys_admin,-sys_resource --inh-caps=-all \"$@\"",
            "grep Cap /proc/self/status; cat /etc/passwd | wc -l",
        ),
        sh(
            "a read-only filesystem",
            "mkdir m; set -- unshare --mount sh -c 'mount --bind -o ro m m; cd m; exec \"$@\"' sh \"$@\"",
            "touch f; echo $?; ls; cat /etc/passwd | wc -l",
        ),
    ]);
}
