//! The ways to make a record durable, one for each face of nowait.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::ValueEnum;
use nowait::engine::{Backend, Engine, LocalEngine, Wait};
use nowait::op::{Fsync, Op, Write};
use nowait::{File, Handle, RwFlags};
use pollster::block_on;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use crate::aio;
use crate::record::{ROOM, bytes, offset};

/// One face, and the call that makes its records durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Face {
    /// `File::write_all_at`, then `File::sync_data`, on the process engine.
    Future,
    /// The same on an engine without a ring.
    Threads,
    /// `File::write_all_at` with `RWF_DSYNC`.
    Dsync,
    /// `File::blocking_write_all_at`, then `File::blocking_sync_all`.
    Blocking,
    /// `Write` and `Fsync` on a `LocalEngine`, one after the other.
    Local,
    /// `nowait::tokio::File`: a seek, `write_all` and `sync_all`.
    Tokio,
    /// aio_write(3), then aio_fsync(3).
    AioFsync,
    /// aio_write(3) to a file that was opened with O_DSYNC.
    AioDsync,
}

impl Face {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Writes records with each face in a thread of its own, until the process is killed or a write
/// fails.
pub(crate) fn write(
    directory: &Path,
    faces: &[Face],
    early: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = faces
            .iter()
            .map(|face| scope.spawn(move || Writer::new(directory, *face, early)?.run()))
            .collect();
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })
}

/// One face's file.
struct Writer {
    face: Face,
    name: String,
    file: std::fs::File,
    early: bool,
}

impl Writer {
    /// Makes the file, and makes its name durable.
    fn new(directory: &Path, face: Face, early: bool) -> io::Result<Writer> {
        let name = face.name();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        if face == Face::AioDsync && !early {
            options.custom_flags(libc::O_DSYNC);
        }
        let file = options.open(directory.join(&name))?;
        file.sync_all()?;
        std::fs::File::open(directory)?.sync_all()?;
        Ok(Writer {
            face,
            name,
            file,
            early,
        })
    }

    fn run(&self) -> io::Result<()> {
        match self.face {
            Face::Future => self.futures(&Engine::process()?),
            Face::Threads => self.futures(&Engine::options().backend(Backend::Threads).build()?),
            Face::Dsync => self.dsync(&Engine::process()?),
            Face::Blocking => self.blocking(&Engine::process()?),
            Face::Local => self.local(),
            Face::Tokio => self.tokio(),
            Face::AioFsync | Face::AioDsync => self.aio(),
        }
    }

    /// Stores one record after another, and acknowledges each. `store` is given the bytes, their
    /// offset, and if they must be durable when it returns.
    fn each(&self, mut store: impl FnMut(Vec<u8>, u64, bool) -> io::Result<()>) -> io::Result<()> {
        for number in 0.. {
            // An early writer makes durable what it has acknowledged long before.
            let durable = !self.early || number % ROOM == ROOM - 1;
            store(bytes(&self.name, number), offset(number), durable)?;
            // One write(2) for a line: the lines of several writers do not mix.
            let line = format!("ACK {} {number}\n", self.name);
            io::stdout().lock().write_all(line.as_bytes())?;
        }
        Ok(())
    }

    fn futures(&self, engine: &Engine) -> io::Result<()> {
        let file = File::from_fd(self.file.try_clone()?, engine)?;
        self.each(|record, offset, durable| {
            block_on(file.write_all_at(record, offset)).result?;
            if durable {
                block_on(file.sync_data())?;
            }
            Ok(())
        })
    }

    fn dsync(&self, engine: &Engine) -> io::Result<()> {
        let file = File::from_fd(self.file.try_clone()?, engine)?;
        self.each(|record, offset, durable| {
            let flags = if durable {
                RwFlags::DSYNC
            } else {
                RwFlags::empty()
            };
            block_on(file.write_all_at(record, offset).flags(flags)).result?;
            Ok(())
        })
    }

    fn blocking(&self, engine: &Engine) -> io::Result<()> {
        let file = File::from_fd(self.file.try_clone()?, engine)?;
        self.each(|record, offset, durable| {
            file.blocking_write_all_at(&record, offset)?;
            if durable {
                file.blocking_sync_all()?;
            }
            Ok(())
        })
    }

    fn local(&self) -> io::Result<()> {
        let mut engine = LocalEngine::new()?;
        let file = Handle::new(self.file.try_clone()?)?;
        let mut carry_out = |op: Op| -> io::Result<()> {
            let mut done = Vec::new();
            let mut ops = vec![op];
            engine.submit_batch(&mut ops);
            engine.reap(&mut done, Wait::For(1))?;
            let completion = done.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok(completion.result.map(drop)?)
        };
        self.each(|record, offset, durable| {
            carry_out(Write::new(&file, Box::new(record), offset).all().into())?;
            if durable {
                carry_out(Fsync::data(&file).into())?;
            }
            Ok(())
        })
    }

    fn tokio(&self) -> io::Result<()> {
        let mut file = nowait::tokio::File::from_std(self.file.try_clone()?);
        self.each(|record, offset, durable| {
            block_on(async {
                file.seek(io::SeekFrom::Start(offset)).await?;
                file.write_all(&record).await?;
                file.flush().await?;
                if durable {
                    file.sync_data().await?;
                }
                Ok(())
            })
        })
    }

    fn aio(&self) -> io::Result<()> {
        self.each(|record, offset, durable| {
            aio::write(&self.file, &record, offset)?;
            if durable && self.face == Face::AioFsync {
                aio::sync(&self.file)?;
            }
            Ok(())
        })
    }
}
