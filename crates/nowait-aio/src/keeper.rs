//! The keeper: the one thread that has the files of requests in flight, in a descriptor table of its
//! own, and drives the engine.
//!
//! ```text
//!   queue.queue ─► take in ─► positional ─► its file's lane ─► engine ─► reap ─┐
//!                        ├─► append ─────► one at a time ──────┘               ├─► finish
//!                        ├─► sync ───────► when all before it are done ─┘      │
//!                        └─► stream ─────► when it is ready (epoll), at once ──┘
//! ```
//! It finishes a request in this order: let go of the file, give the place back, tell the program. So
//! once aio_error(3) says done, nothing of ours holds the file any more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nowait::engine::{Backend, LocalEngine, Options, Wait};
use nowait::op::{Call, Fsync, Op, Read, Write};
use nowait::read::Trying;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::abi::{AIO_ALLDONE, AIO_CANCELED, AIO_NOTCANCELED};
use crate::fd_passing::{FdMessage, FdReceiver};
use crate::file::{Direction, File, Inode};
use crate::notification_slot::NotificationSlot;
use crate::notify::{Notification, Notifier};
use crate::queue::{Cancellation, FileRef, Message, Submission, SubmissionQueue};
use crate::request::{Buffer, Opcode, Outcome, Request};
use crate::sys::open_file::DescriptorOf;
use crate::sys::{epoll as sys_epoll, open_file, rw, thread};
use crate::wait;

/// How many operations the engine has at once on a ring; further requests wait here, where they can
/// be cancelled.
const ON_RING: usize = 256;
/// And on threads: as many as there are workers.
const ON_THREADS: usize = 64;
/// How many times the keeper lets others run before it sleeps: whoever was just told of a request
/// often has another one at once.
const LINGER: usize = 8;

/// For how long it sleeps where it can't be woken.
const NAP: Duration = Duration::from_millis(10);

/// What epoll tells the keeper of; files have their number.
const LETTERS: u64 = u64::MAX;
const ENGINE: u64 = u64::MAX - 1;

pub struct Keeper {
    receiver: FdReceiver,
    epoll: OwnedFd,
    engine: LocalEngine,
    /// How many operations the engine may have, and how many one file may have there.
    room: usize,
    share: usize,
    /// How many it has.
    at_engine: usize,
    /// Requests in flight, by the token of their operation.
    requests: Vec<Option<InFlight>>,
    free: Vec<usize>,
    files: HashMap<u64, File>,
    inodes: HashMap<Inode, Siblings>,
    next_file: u64,
    /// Files that came by letter and whose request was not taken in yet.
    letters: HashMap<u64, Option<OwnedFd>>,
    /// Files with requests for the engine.
    ready: VecDeque<u64>,
    ops: Vec<Op>,
    /// The engine has completions.
    news: bool,
    finished: Vec<(InFlight, Outcome)>,
    /// By which it tells the program of one after the other.
    slot: &'static NotificationSlot,
    /// The program's end of the mail is closed.
    cut_off: bool,
}

/// A request in flight.
pub struct InFlight {
    request: Request,
    flags: OFlags,
    file: u64,
    /// Which requests of its inode came before which synchronisation.
    era: u64,
    /// The engine has it.
    at_engine: bool,
    /// What comes of a stream's read(2) or write(2) by a worker.
    called: Option<Arc<OnceLock<Outcome>>>,
    /// A stream was tried, and was not ready for it.
    tried: bool,
    /// Bytes that a stream has taken so far.
    done: usize,
}

impl InFlight {
    /// Whether it can't be cancelled any more. A read that waits for bytes can; a write that waits for
    /// room has begun, as with glibc, whose thread is in write(2).
    fn has_begun(&self) -> bool {
        self.at_engine || self.done > 0 || self.tried && self.request.opcode == Opcode::Write
    }
}

/// What is known of one inode: its open files, and what a synchronisation waits for.
#[derive(Default)]
struct Siblings {
    files: Vec<u64>,
    barrier: Barrier,
}

/// What a synchronisation of one inode waits for.
#[derive(Default)]
struct Barrier {
    /// Counts synchronisations: each closes an era.
    era: u64,
    /// Requests in flight of each era, oldest first.
    open: VecDeque<(u64, usize)>,
    /// Synchronisations that wait for all eras up to theirs.
    syncs: VecDeque<(u64, usize)>,
}

impl Barrier {
    fn begin(&mut self) -> u64 {
        match self.open.back_mut() {
            Some((era, n)) if *era == self.era => *n += 1,
            _ => self.open.push_back((self.era, 1)),
        }
        self.era
    }

    /// A synchronisation comes: what began until now is before it.
    fn close(&mut self, token: usize) {
        self.syncs.push_back((self.era, token));
        self.era += 1;
    }

    fn end(&mut self, era: u64) {
        if let Some(at) = self.open.iter().position(|(e, _)| *e == era) {
            self.open[at].1 -= 1;
            if self.open[at].1 == 0 {
                self.open.remove(at);
            }
        }
    }

    /// The next synchronisation that nothing is before.
    fn next_sync(&mut self) -> Option<usize> {
        let (era, token) = *self.syncs.front()?;
        if self.open.front().is_some_and(|(oldest, _)| *oldest <= era) {
            return None;
        }
        self.syncs.pop_front();
        Some(token)
    }
}

/// What an error of the engine is to a C program.
fn errno_of(error: &nowait::Error) -> Errno {
    error.errno().map_or(Errno::INVAL, Errno::from_raw_os_error)
}

impl Keeper {
    /// Sets up what it needs, all of it in its own descriptor table.
    pub fn new(receiver: FdReceiver) -> Result<Keeper, Errno> {
        // The caller has tried the page cache already.
        let options = Options::new()
            .depth(ON_RING)
            .workers(ON_THREADS)
            .trying(Trying::Never);
        let mut engine = options.build_local().map_err(|e| errno_of(&e))?;
        let room = match engine.backend() {
            Backend::Uring => ON_RING,
            Backend::Threads => ON_THREADS,
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |fd, what| epoll::add(&epoll, fd, EventData::new_u64(what), EventFlags::IN);
        watch(receiver.as_fd(), LETTERS)?;
        watch(engine.event_fd().map_err(|e| errno_of(&e))?, ENGINE)?;
        Ok(Keeper {
            receiver,
            epoll,
            engine,
            room,
            share: room / 2,
            at_engine: 0,
            requests: Vec::new(),
            free: Vec::new(),
            files: HashMap::new(),
            inodes: HashMap::new(),
            next_file: 0,
            letters: HashMap::new(),
            ready: VecDeque::new(),
            ops: Vec::new(),
            news: false,
            finished: Vec::new(),
            slot: NotificationSlot::new(),
            cut_off: false,
        })
    }

    /// The keeper's life: take in, hand on, reap, tell, sleep.
    pub fn keep(mut self, queue: &'static SubmissionQueue) {
        loop {
            while self.step(queue) {}
            if self.cut_off && queue.is_discarded() {
                return;
            }
            for _ in 0..LINGER {
                if !queue.is_empty() {
                    break;
                }
                std::thread::yield_now();
            }
            queue.sleep_if_empty(|| self.sleep());
        }
    }

    /// Does what there is to do; says whether there was anything.
    fn step(&mut self, queue: &'static SubmissionQueue) -> bool {
        let mut busy = false;
        while let Some(message) = queue.pop() {
            busy = true;
            match message {
                Message::Submit(submitted) => self.take_in(queue, submitted),
                Message::Cancel(cancel) => self.cancel(queue, &cancel),
            }
        }
        self.hand_on();
        busy |= self.reap();
        busy |= !self.finished.is_empty();
        self.tell(queue);
        busy
    }

    /// Takes in a request, with its file.
    fn take_in(&mut self, queue: &SubmissionQueue, submitted: Submission) {
        let Submission {
            request,
            file_flags: flags,
            file,
        } = submitted;
        let id = match file {
            FileRef::Open(id) => Ok(id),
            FileRef::Passed(letter) => self.open(queue, letter, request.fildes),
        };
        let in_flight = |file| InFlight {
            request,
            flags,
            file,
            era: 0,
            at_engine: false,
            called: None,
            tried: false,
            done: 0,
        };
        match id {
            Ok(id) => self.place(in_flight(id)),
            Err(errno) => {
                queue.release();
                let failed = in_flight(0);
                finish_in_keeper(failed.request, Err(errno), &mut self.slot, &queue.notifier);
                wait::wake_all();
            }
        }
    }

    /// The file that a letter has brought: one that is kept already, or a new one.
    fn open(&mut self, queue: &SubmissionQueue, letter: u64, fildes: i32) -> Result<u64, Errno> {
        // It was sent before its request was handed in. No more are opened than needed: each that
        // waits here takes a place in the table.
        while !self.letters.contains_key(&letter) && self.receive_file() {}
        // Without a descriptor: the limit leaves no room for one.
        let fd = self.letters.remove(&letter).flatten().ok_or(Errno::AGAIN)?;
        let inode = Inode::of(fd.as_fd())?;
        let siblings = self.inodes.get(&inode).map_or(&[][..], |s| &s.files[..]);
        let same = |id: &&u64| {
            let file = self.files.get(id);
            file.is_some_and(|file| open_file::is_same(file.as_fd(), fd.as_fd()) == Some(true))
        };
        if let Some(&id) = siblings.iter().find(same) {
            queue.open_files().add_request(id, fildes);
            return Ok(id);
        }
        let id = self.next_file;
        self.next_file += 1;
        let number = fd.as_raw_fd();
        self.files.insert(id, File::new(fd, inode)?);
        self.inodes.entry(inode).or_default().files.push(id);
        queue.open_files().insert(id, number, fildes);
        Ok(id)
    }

    /// Opens the next letter; says whether there was one.
    fn receive_file(&mut self) -> bool {
        match self.receiver.receive() {
            Some(FdMessage::Wake) => true,
            Some(FdMessage::File { id, fd }) => {
                self.letters.insert(id, fd);
                true
            }
            Some(FdMessage::Closed) => {
                if !self.cut_off {
                    self.cut_off = true;
                    let _ = epoll::delete(&self.epoll, &self.receiver);
                }
                false
            }
            None => false,
        }
    }

    /// Puts a request into its lane.
    fn place(&mut self, request: InFlight) {
        let InFlight {
            file: id, flags, ..
        } = request;
        let opcode = request.request.opcode;
        let token = match self.free.pop() {
            Some(token) => {
                self.requests[token] = Some(request);
                token
            }
            None => {
                self.requests.push(Some(request));
                self.requests.len() - 1
            }
        };
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        let siblings = self.inodes.entry(file.inode()).or_default();
        if matches!(opcode, Opcode::Sync | Opcode::DataSync) {
            siblings.barrier.close(token);
            return self.release_syncs(id);
        }
        let era = siblings.barrier.begin();
        if let Some(request) = &mut self.requests[token] {
            request.era = era;
        }
        match opcode {
            _ if !file.takes_positional_calls() => {
                let direction = if opcode == Opcode::Read {
                    Direction::In
                } else {
                    Direction::Out
                };
                let lane = file.lane(direction);
                lane.push_back(token);
                if lane.len() == 1 {
                    self.advance(id, direction);
                }
            }
            Opcode::Write if flags.contains(OFlags::APPEND) => {
                file.appends.push_back(token);
                self.queue(id);
            }
            _ => {
                file.positional.push_back(token);
                self.queue(id);
            }
        }
    }

    /// Gives a file its turn at the engine, if it has something for it and is not over its share.
    fn queue(&mut self, id: u64) {
        if let Some(file) = self.files.get_mut(&id)
            && !file.queued
            && file.has_next()
            && file.at_engine < self.share
        {
            file.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Has the synchronisations that wait for nothing any more carried out.
    fn release_syncs(&mut self, id: u64) {
        let Some(inode) = self.files.get(&id).map(File::inode) else {
            return;
        };
        while let Some(token) = self
            .inodes
            .get_mut(&inode)
            .and_then(|siblings| siblings.barrier.next_sync())
        {
            let Some(Some(request)) = self.requests.get(token) else {
                continue;
            };
            let id = request.file;
            if let Some(file) = self.files.get_mut(&id) {
                file.positional.push_back(token);
            }
            self.queue(id);
        }
    }

    /// Hands on to the engine what it has room for, a request of each file in turn.
    fn hand_on(&mut self) {
        while self.at_engine < self.room {
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            let Some(file) = self.files.get_mut(&id) else {
                continue;
            };
            file.queued = false;
            if let Some(token) = file.next() {
                self.submit_later(token, false);
            }
            self.queue(id);
        }
        if !self.ops.is_empty() {
            self.engine.submit_batch(&mut self.ops);
        }
    }

    /// Makes a request's operation; the next `submit_batch` takes it. That of a stream is read(2) or
    /// write(2) itself: a ring would wait for a file that is open with O_NONBLOCK.
    fn submit_later(&mut self, token: usize, stream: bool) {
        let Some(Some(request)) = self.requests.get_mut(token) else {
            return;
        };
        let Some(file) = self.files.get_mut(&request.file) else {
            return;
        };
        let (handle, offset) = (file.handle(), request.request.offset);
        let buf = request.request.buf.skip(request.done);
        let op = match request.request.opcode {
            opcode @ (Opcode::Read | Opcode::Write) if stream => {
                let (handle, called) = (handle.clone(), Arc::new(OnceLock::new()));
                request.called = Some(called.clone());
                Op::from(Call::new(move || {
                    // SAFETY: the memory is that of a request in flight: see `Buffer`.
                    let outcome = unsafe {
                        let Buffer { start, len } = buf.whole();
                        rw::transfer(handle.as_fd(), opcode == Opcode::Write, start, len)
                    };
                    let _ = called.set(outcome);
                }))
            }
            // As pread(2): what was read before an error counts.
            Opcode::Read => Op::from(Read::new(handle, Box::new(buf), offset).or_part()),
            Opcode::Write => Op::from(Write::new(handle, Box::new(buf), offset)),
            Opcode::Sync => Op::from(Fsync::new(handle)),
            Opcode::DataSync => Op::from(Fsync::data(handle)),
        };
        self.ops.push(op.token(token as u64));
        request.at_engine = true;
        file.at_engine += 1;
        self.at_engine += 1;
    }

    /// Collects what the engine has done; says whether that was anything.
    fn reap(&mut self) -> bool {
        if !std::mem::take(&mut self.news) {
            return false;
        }
        let mut done = Vec::new();
        let _ = self.engine.reap(&mut done, Wait::No);
        let any = !done.is_empty();
        for completion in done {
            let token = completion.held.get_token() as usize;
            let outcome = completion.result.map_err(|e| errno_of(&e));
            // With it goes the operation, and its hold on the file.
            drop(completion.held);
            self.back_from_engine(token, outcome);
        }
        any
    }

    fn back_from_engine(&mut self, token: usize, outcome: Outcome) {
        self.at_engine -= 1;
        let Some(Some(request)) = self.requests.get_mut(token) else {
            return;
        };
        request.at_engine = false;
        let (id, opcode) = (request.file, request.request.opcode);
        let append = opcode == Opcode::Write && request.flags.contains(OFlags::APPEND);
        let mut stream = None;
        if let Some(file) = self.files.get_mut(&id) {
            file.at_engine -= 1;
            for direction in [Direction::In, Direction::Out] {
                if file.lane(direction).front() == Some(&token) {
                    stream = Some(direction);
                }
            }
            if let Some(direction) = stream {
                let called = request.called.take();
                let called = called.and_then(|called| called.get().copied());
                let outcome = outcome.and_then(|_| called.unwrap_or(Err(Errno::IO)));
                if let Some(over) = request.go_on(outcome) {
                    file.lane(direction).pop_front();
                    self.finish(token, over);
                }
                return self.advance(id, direction);
            }
            if append {
                file.appending = false;
            }
        }
        self.finish(token, outcome);
        self.queue(id);
    }

    /// Goes on with a stream: the first of the lane is tried, and the next, until one has to wait.
    fn advance(&mut self, id: u64, direction: Direction) {
        loop {
            let Some(file) = self.files.get_mut(&id) else {
                return;
            };
            let Some(&token) = file.lane(direction).front() else {
                break;
            };
            let Some(Some(request)) = self.requests.get_mut(token) else {
                break;
            };
            if request.at_engine {
                break;
            }
            match transfer(file, request, direction) {
                Transfer::Done(outcome) => {
                    file.lane(direction).pop_front();
                    self.finish(token, outcome);
                }
                Transfer::NotReady => {
                    request.tried = true;
                    break;
                }
                Transfer::Blocking => {
                    self.submit_later(token, true);
                    break;
                }
            }
        }
        self.watch(id);
    }

    /// Has epoll tell when a stream is ready for what waits for it.
    fn watch(&mut self, id: u64) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        let mut wanted = EventFlags::empty();
        for (lane, event) in [
            (&file.reads, EventFlags::IN),
            (&file.writes, EventFlags::OUT),
        ] {
            let waits = lane
                .front()
                .and_then(|token| self.requests[*token].as_ref())
                .is_some_and(|request| !request.at_engine);
            if waits {
                wanted |= event;
            }
        }
        if wanted == file.watched {
            return;
        }
        let data = EventData::new_u64(id);
        let told = match (file.watched.is_empty(), wanted.is_empty()) {
            (true, _) => epoll::add(&self.epoll, &file, data, wanted),
            (_, true) => epoll::delete(&self.epoll, &file),
            _ => epoll::modify(&self.epoll, &file, data, wanted),
        };
        if told.is_ok() {
            file.watched = wanted;
            return;
        }
        // It can't be watched: a worker waits for it.
        let waiting = [file.reads.front().copied(), file.writes.front().copied()];
        for token in waiting.into_iter().flatten() {
            if self.requests[token].as_ref().is_some_and(|r| !r.at_engine) {
                self.submit_later(token, true);
            }
        }
    }

    /// A request is done, but for telling the program.
    fn finish(&mut self, token: usize, outcome: Outcome) {
        let Some(request) = self.requests[token].take() else {
            return;
        };
        self.free.push(token);
        let id = request.file;
        if matches!(request.request.opcode, Opcode::Read | Opcode::Write)
            && let Some(file) = self.files.get(&id)
            && let Some(siblings) = self.inodes.get_mut(&file.inode())
        {
            siblings.barrier.end(request.era);
            self.release_syncs(id);
        }
        self.finished.push((request, outcome));
    }

    /// Lets go of files that nothing is in flight on any more, and tells the program.
    fn tell(&mut self, queue: &'static SubmissionQueue) {
        if self.finished.is_empty() {
            return;
        }
        let mut gone = Vec::new();
        {
            let mut kept = queue.open_files();
            for (request, _) in &self.finished {
                if kept.remove_request(request.file) {
                    gone.push(request.file);
                }
            }
        }
        for id in gone {
            self.close(id);
        }
        for (request, outcome) in self.finished.drain(..) {
            queue.release();
            finish_in_keeper(request.request, outcome, &mut self.slot, &queue.notifier);
        }
        wait::wake_all();
    }

    fn close(&mut self, id: u64) {
        let Some(file) = self.files.remove(&id) else {
            return;
        };
        if !file.watched.is_empty() {
            // The program may still have it open: closing alone would not end the watch.
            let _ = epoll::delete(&self.epoll, &file);
        }
        if let Some(siblings) = self.inodes.get_mut(&file.inode()) {
            siblings.files.retain(|other| *other != id);
            if siblings.files.is_empty() {
                self.inodes.remove(&file.inode());
            }
        }
    }

    /// Cancels what nobody has begun.
    fn cancel(&mut self, queue: &'static SubmissionQueue, cancel: &Cancellation) {
        let mut waiting = HashSet::new();
        let mut begun = false;
        let mut judged = HashMap::new();
        for (token, request) in self.requests.iter().enumerate() {
            let Some(request) = request else { continue };
            let meant = request.request.fildes == cancel.fildes.number
                && cancel
                    .block
                    .is_none_or(|block| block == request.request.block);
            let mut is_of_file = || {
                let judged = judged.entry(request.file);
                *judged.or_insert_with(|| self.is_meant(request, cancel))
            };
            // A named request is meant, whichever file the number is by now.
            if !meant || cancel.block.is_none() && !is_of_file() {
                continue;
            }
            if request.has_begun() {
                begun = true;
            } else {
                waiting.insert(token);
            }
        }
        let files: HashSet<u64> = waiting
            .iter()
            .filter_map(|token| Some(self.requests[*token].as_ref()?.file))
            .collect();
        for id in &files {
            if let Some(file) = self.files.get_mut(id) {
                for lane in file.lanes() {
                    lane.retain(|token| !waiting.contains(token));
                }
                if let Some(siblings) = self.inodes.get_mut(&file.inode()) {
                    let syncs = &mut siblings.barrier.syncs;
                    syncs.retain(|(_, token)| !waiting.contains(token));
                }
            }
        }
        let any = !waiting.is_empty();
        let mut waiting: Vec<usize> = waiting.into_iter().collect();
        waiting.sort_unstable();
        for token in waiting {
            self.finish(token, Err(Errno::CANCELED));
        }
        for id in files {
            self.watch(id);
        }
        // The answer comes after the fact: whoever has it finds ECANCELED.
        self.tell(queue);
        cancel.set_answer(match (begun, any) {
            (true, _) => AIO_NOTCANCELED,
            (false, true) => AIO_CANCELED,
            (false, false) => AIO_ALLDONE,
        });
    }

    /// Whether the number by which the program names a file is still the file of this request.
    /// Where the kernel can't say, it is.
    fn is_meant(&self, request: &InFlight, cancel: &Cancellation) -> bool {
        let Some(file) = self.files.get(&request.file) else {
            return false;
        };
        let kept = DescriptorOf {
            thread: thread::id(),
            number: file.as_fd().as_raw_fd(),
        };
        open_file::is_same_across_threads(cancel.fildes, kept) != Some(false)
    }

    /// Nothing tells what there is: a sandbox has taken epoll_wait(2) away. So all of it is looked at, now
    /// and then.
    fn look_everywhere(&mut self) {
        std::thread::sleep(NAP);
        self.news = true;
        for id in self.files.keys().copied().collect::<Vec<u64>>() {
            self.advance(id, Direction::In);
            self.advance(id, Direction::Out);
        }
    }

    /// Sleeps until there is a letter, a completion, or a stream that is ready.
    fn sleep(&mut self) {
        // Without letters nobody can wake us, and what is queued all the same is found this way.
        let nap = self.cut_off.then_some(NAP);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let woken = match sys_epoll::wait(self.epoll.as_fd(), &mut events, nap) {
            Ok(n) => events.into_iter().take(n),
            Err(Errno::INTR) => return,
            Err(_) => return self.look_everywhere(),
        };
        for event in woken {
            let flags = EventFlags::from_bits_retain(event.events);
            match event.u64 {
                LETTERS => {
                    self.receive_file();
                }
                ENGINE => self.news = true,
                id => {
                    let ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                    if ended || flags.contains(EventFlags::IN) {
                        self.advance(id, Direction::In);
                    }
                    if ended || flags.contains(EventFlags::OUT) {
                        self.advance(id, Direction::Out);
                    }
                }
            }
        }
    }
}

/// Completes a request. Its notifications are sent at once where that is possible, and by the notifier where
/// they are not. The caller wakes waiting threads.
fn finish_in_keeper(
    request: Request,
    outcome: Outcome,
    slot: &mut &'static NotificationSlot,
    notifier: &Notifier,
) {
    if request.notification.is_none() && request.list.is_none() {
        return request.block.complete(outcome);
    }
    request.block.complete_and_notify(outcome, slot);
    let last = request.list.as_ref().filter(|list| list.remove());
    let of_list = last.map_or(Notification::None, |list| *list.notification());
    // A thread, or a signal that cannot be queued now, would delay all other requests.
    let unsent = [request.notification, of_list].map(|notification| {
        if notification.is_thread() || notification.send() == Err(Errno::AGAIN) {
            notification
        } else {
            Notification::None
        }
    });
    if unsent.iter().all(Notification::is_none) {
        return slot.set_finished();
    }
    slot.set_delayed();
    let used = std::mem::replace(slot, notifier.idle_slot());
    notifier.add(Some(used), unsent);
}

/// What came of a try to read or write a stream without waiting.
enum Transfer {
    Done(Outcome),
    NotReady,
    /// It takes a call that may wait.
    Blocking,
}

impl InFlight {
    /// Counts what a call has done of a stream's request; says how that ended, if it did. A write goes on
    /// until all is written, as write(2) does where it may wait.
    fn go_on(&mut self, outcome: Outcome) -> Option<Outcome> {
        match outcome {
            Ok(n) => {
                self.done += n;
                let is_part = n > 0 && self.done < self.request.buf.len;
                (self.request.opcode == Opcode::Read || !is_part).then_some(Ok(self.done))
            }
            Err(Errno::INTR) => None,
            // What was written before counts; the error comes back to the next write.
            Err(_) if self.done > 0 => Some(Ok(self.done)),
            Err(errno) => Some(Err(errno)),
        }
    }
}

/// Goes on with one request of a stream, as far as it gets.
fn transfer(file: &File, request: &mut InFlight, direction: Direction) -> Transfer {
    let write = direction == Direction::Out;
    let may_wait = !request.flags.contains(OFlags::NONBLOCK);
    loop {
        let rest = request.request.buf.skip(request.done);
        let outcome = if request.request.buf.len > 0 {
            // SAFETY: the memory is that of a request in flight: see `Buffer`.
            unsafe { rw::transfer_nowait(file.as_fd(), write, rest.start, rest.len) }
        } else if write {
            rw::send_empty(file.as_fd()).map(|()| 0)
        } else {
            Err(Errno::NOTSOCK)
        };
        match outcome {
            Err(Errno::AGAIN) if may_wait => return Transfer::NotReady,
            // The kernel never shows the file a transfer of no bytes in pieces: read(2) and write(2) do.
            Err(Errno::NOTSOCK) if request.request.buf.len == 0 => {
                return match file.takes(direction) {
                    Err(errno) => Transfer::Done(Err(errno)),
                    Ok(()) => Transfer::Blocking,
                };
            }
            // This kernel has no such call for this kind of file.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                return match file.takes(direction) {
                    Err(errno) => Transfer::Done(Err(errno)),
                    Ok(()) if may_wait && !file.is_ready(direction) => Transfer::NotReady,
                    Ok(()) => Transfer::Blocking,
                };
            }
            outcome => {
                if let Some(over) = request.go_on(outcome) {
                    return Transfer::Done(over);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synchronisation_waits_for_what_came_before_it_and_for_nothing_else() {
        let mut barrier = Barrier::default();
        let (first, second) = (barrier.begin(), barrier.begin());
        barrier.close(1);
        let later = barrier.begin();
        barrier.close(2);
        assert_eq!(barrier.next_sync(), None);
        barrier.end(first);
        assert_eq!(barrier.next_sync(), None);
        barrier.end(second);
        assert_eq!(barrier.next_sync(), Some(1));
        assert_eq!(barrier.next_sync(), None);
        barrier.end(later);
        assert_eq!(barrier.next_sync(), Some(2));
        assert_eq!(barrier.next_sync(), None);
    }
}
