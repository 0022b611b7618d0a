//! A dropped file whose close waits for a peer delays nothing else.
#![allow(unsafe_code, reason = "setsockopt(2) with SO_LINGER")]

use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::Context;
use std::time::{Duration, Instant};

use nowait::op::Nop;
use tokio::io::AsyncWriteExt;

use crate::common::completions::one;
use crate::common::process_engine::each_process;
use crate::common::wait::{LONG, wait_until};

/// The linger time of the socket. It ends before, when the peer is dropped.
const LINGER: Duration = LONG;

/// A socket that close(2) waits for, since its peer does not read; and the peer.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: LINGER.as_secs() as i32,
    };
    // SAFETY: the option's value has that size and lives through the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
    assert_eq!(set, 0);
    socket.set_nonblocking(true).unwrap();
    // The kernel takes more while data is on its way to the peer. The socket is full if it takes
    // nothing for some time. poll(2) does not tell: it reports no room while there is little.
    let mut refused = 0;
    while refused < 10 {
        refused += 1;
        while (&socket).write(&[0; 65_536]).is_ok() {
            refused = 0;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    socket.set_nonblocking(false).unwrap();
    (socket.into(), peer)
}

#[test]
fn a_dropped_file_that_waits_for_a_peer_holds_up_nothing() {
    each_process(|engine| {
        let (socket, mut peer) = lingering();
        let mut file = nowait::tokio::File::from(socket);
        {
            let mut writing = Box::pin(file.write(b"x"));
            let waker = futures_util::task::noop_waker();
            let polled = writing.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_ready(), "taken, and on its way");
        }
        drop(file);
        assert_eq!(engine.in_flight(), 1);
        let written = || engine.stats().ring + engine.stats().workers;
        let before = written();
        // The write ends when the peer has read some bytes. Then the socket is closed.
        wait_until("it is being closed", || {
            if written() == before {
                peer.read_exact(&mut [0; 65_536]).unwrap();
            }
            closing() == 1
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            one(&mut engine.clone(), Nop);
        }
        assert_eq!(closing(), 1, "the engine does nothing else");
        drop(peer);
    });
}

/// The number of threads of this process in close(2).
fn closing() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let call = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("syscall"));
    let close = format!("{} ", libc::SYS_close);
    tasks
        .filter_map(|task| call(task.ok()?).ok())
        .filter(|call| call.starts_with(&close))
        .count()
}
