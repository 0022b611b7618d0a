//! tokio-uring: a runtime of one thread with a ring of its own, as many of them as there are threads,
//! the tasks dealt out to them.

use std::io;
use std::rc::Rc;

use tokio_uring::fs::File;

use super::on_tokio;
use crate::areas::runtimes::gate::{Gate, Source};

struct Uring {
    file: Rc<File>,
    buffer: Vec<u8>,
    write: bool,
}

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let threads: Vec<_> = (0..gate.turn.threads())
        .map(|thread| std::thread::spawn(move || tokio_uring::start(runtime(gate, thread))))
        .collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("panicked"))??;
    }
    Ok(())
}

async fn runtime(gate: &'static Gate, thread: u64) -> io::Result<()> {
    let turn = &gate.turn;
    let file = Rc::new(File::from_std(turn.open()?));
    tokio_uring::spawn(on_tokio::ticks(gate.tick()?));
    let tasks: Vec<_> = (thread..gate.tasks())
        .step_by(turn.threads() as usize)
        .map(|task| {
            let source = Uring {
                file: file.clone(),
                buffer: vec![1; turn.block()],
                write: turn.is_write(),
            };
            tokio_uring::spawn(gate.drive(task, source))
        })
        .collect();
    for task in tasks {
        task.await.map_err(io::Error::other)??;
    }
    Ok(())
}

impl Source for Uring {
    async fn act(&mut self, offset: u64) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let (done, buffer) = match self.write {
            true => self.file.write_all_at(buffer, offset).await,
            false => self.file.read_exact_at(buffer, offset).await,
        };
        self.buffer = buffer;
        done
    }
}
