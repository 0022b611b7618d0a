//! nowait's `LocalEngine`.

use std::io;
use std::time::Instant;

use nowait::Handle;
use nowait::buffer::{Buffer, BufferPool};
use nowait::engine::{Options, Wait};
use nowait::op::{Op, Read};

use super::places::Places;
use super::task::{Done, Task};

/// Reads for a turn.
pub fn read(task: &Task) -> io::Result<Done> {
    let depth = task.depth as usize;
    let pool = BufferPool::new(depth, task.block as usize)?;
    let mut options = Options::new().depth(depth);
    if task.registered {
        options = options.buffers(&pool);
    }
    let mut engine = options.build_local()?;
    let mut files = Vec::new();
    for file in &task.files {
        files.push(Handle::new(file.try_clone()?)?);
    }
    if task.registered {
        let set = engine.file_set(files.len())?;
        files = files
            .iter()
            .map(|file| set.insert(file))
            .collect::<Result<_, _>>()?;
    }
    let mut free: Vec<Buffer> = std::iter::from_fn(|| pool.take())
        .map(|b| Box::new(b) as Buffer)
        .collect();
    let (mut ops, mut out) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
    let mut places = Places::new(task);
    let mut reads = 0;
    let began = Instant::now();
    while !task.is_over(began) {
        while let Some(buffer) = free.pop() {
            let (file, offset) = places.next();
            ops.push(Op::from(Read::new(&files[file], buffer, offset)));
        }
        let wait = Wait::For(task.batch as usize);
        reads += engine.submit_and_wait(&mut ops, &mut out, wait)? as u64;
        for completion in out.drain(..) {
            let (block, n) = (task.block, completion.result?);
            if n != block as usize {
                return Err(task.short(n));
            }
            free.extend(completion.op.into_buffer());
        }
    }
    Ok(Done {
        reads,
        seconds: began.elapsed().as_secs_f64(),
    })
}
