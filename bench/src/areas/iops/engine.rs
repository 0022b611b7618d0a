//! nowait's engines as contenders.

use std::time::Duration;

use nowait::buffer::Buffer;
use nowait::engine::{Engine, Feature, LocalEngine, Options, Wait};
use nowait::op::{Op, Read};
use nowait::support::Support;
use nowait::{Completion, Handle};
use nowait_cli::problem::Problem;

use super::load::{Done, Load, Parts, Queue};
use crate::harness::contender::Fit;
use crate::harness::round::EngineFacts;

/// The options of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// Registered files and memory.
    pub fixed: bool,
    pub sqpoll: bool,
    /// An `Engine`, not a `LocalEngine`.
    pub shared: bool,
}

/// The idle time after which the kernel's thread sleeps: longer than the time between two batches.
const SQPOLL_IDLE: Duration = Duration::from_millis(50);

impl Kind {
    /// A queue on an engine of this kind.
    pub fn queue(self, parts: Parts) -> Result<EngineQueue, Problem> {
        let mut options = Options::new().depth(parts.memory.len());
        if self.fixed {
            options = options.buffers(&parts.pool);
        }
        if self.sqpoll {
            options = options.sqpoll(SQPOLL_IDLE);
        }
        let mut engine = match self.shared {
            true => AnyEngine::Shared(options.build()?),
            false => AnyEngine::Local(Box::new(options.build_local()?)),
        };
        let files = parts.files.into_iter().map(Handle::new);
        let mut files: Vec<Handle> = files.collect::<Result<_, _>>()?;
        if self.fixed {
            let set = match &mut engine {
                AnyEngine::Local(engine) => engine.file_set(files.len())?,
                AnyEngine::Shared(engine) => engine.file_set(files.len())?,
            };
            let registered = files.iter().map(|file| set.insert(file));
            files = registered.collect::<Result<_, _>>()?;
        }
        let memory = parts.memory.into_iter();
        Ok(EngineQueue {
            engine,
            files,
            ops: Vec::with_capacity(memory.len()),
            done: Vec::with_capacity(memory.len()),
            memory: memory
                .map(|piece| Some(Box::new(piece) as Buffer))
                .collect(),
        })
    }

    /// Returns if an engine of this kind is available for the files of a turn: reads one block, and looks
    /// for the features that are missing.
    pub fn fits(self, load: &Load<'_>) -> Fit {
        let attempt = || -> Result<Vec<String>, Problem> {
            let mut queue = self.queue(load.parts(1)?)?;
            let mut done = Vec::new();
            queue.prepare(0, 0, 0);
            queue.submit_and_wait(1, &mut done)?;
            for (_, read) in done {
                read?;
            }
            let wanted = [
                (Feature::RegisteredFiles, self.fixed),
                (Feature::RegisteredBuffers, self.fixed),
                (Feature::Sqpoll, self.sqpoll),
            ];
            let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
            let lacking = wanted.filter_map(|(feature, _)| {
                let support = queue.engine.support(feature);
                matches!(support, Support::No(_)).then(|| format!("{feature}: {support}"))
            });
            Ok(lacking.collect())
        };
        match attempt() {
            Ok(lacking) if lacking.is_empty() => Fit::Yes,
            Ok(lacking) => Fit::With(lacking.join("; ")),
            Err(Problem::Failed(why) | Problem::Usage(why)) => Fit::No(why),
            Err(problem) => Fit::No(format!("{problem:?}")),
        }
    }
}

/// An engine of either type.
enum AnyEngine {
    Local(Box<LocalEngine>),
    Shared(Engine),
}

impl AnyEngine {
    fn support(&self, feature: Feature) -> Support {
        match self {
            AnyEngine::Local(engine) => engine.support(feature),
            AnyEngine::Shared(engine) => engine.support(feature),
        }
    }
}

/// Reads on an engine. The buffer of a slot is moved into its operation and back.
pub struct EngineQueue {
    engine: AnyEngine,
    files: Vec<Handle>,
    memory: Vec<Option<Buffer>>,
    ops: Vec<Op>,
    done: Vec<Completion>,
}

impl Queue for EngineQueue {
    #[inline]
    fn prepare(&mut self, slot: usize, file: usize, offset: u64) {
        if let Some(buffer) = self.memory[slot].take() {
            let read = Read::new(&self.files[file], buffer, offset);
            self.ops.push(Op::from(read).user_data(slot as u64));
        }
    }

    #[inline]
    fn submit_and_wait(&mut self, at_least: usize, done: &mut Vec<Done>) -> Result<(), Problem> {
        let wait = Wait::For(at_least);
        match &mut self.engine {
            AnyEngine::Local(engine) => {
                engine.submit_and_wait(&mut self.ops, &mut self.done, wait)?;
            }
            AnyEngine::Shared(engine) => {
                engine.submit_batch(&mut self.ops);
                engine.reap(&mut self.done, wait)?;
            }
        }
        for completion in self.done.drain(..) {
            let slot = completion.op.get_user_data() as usize;
            self.memory[slot] = completion.op.into_buffer();
            done.push((slot, completion.result.map_err(Problem::from)));
        }
        Ok(())
    }

    fn facts(&self) -> Option<EngineFacts> {
        Some(match &self.engine {
            AnyEngine::Local(engine) => (&**engine).into(),
            AnyEngine::Shared(engine) => engine.into(),
        })
    }
}
