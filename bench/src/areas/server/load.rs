//! The clients of a turn: connections that are kept alive, each with one request at a time, in one thread.
//!
//! ```text
//!  connect all ─ a few requests on each ─ begin ─┬ hot  connection: any hot file ─► check ─► note ─► again
//!                                                └ cold connection: the next cold file, each once
//! ```
//! A turn ends when its time is over, or when each cold file was read once: another response of it would come
//! from the page cache.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::content::{Kind, Name};
use super::ground::Ground;
use crate::harness::class::Tape;
use crate::harness::scramble::mix;

/// The requests of each connection that are not measured. They start the server's threads.
const LEAD: u64 = 4;
/// The time that a server gets for its last responses.
const PATIENCE: Duration = Duration::from_secs(60);

/// The requests of a turn.
pub struct Load<'a> {
    pub address: SocketAddr,
    pub ground: &'a Ground,
    /// Connections of each kind.
    pub connections: [u32; 2],
    pub time: Duration,
    pub seed: u64,
    pub stop: &'a Stop,
}

/// The responses of a turn.
pub struct Seen {
    /// The responses of each kind.
    pub tapes: [Tape; 2],
    /// Seconds until the last response.
    pub seconds: f64,
    /// Seconds of processor time that the clients have used while they were measured.
    pub cpu: f64,
    /// True if each cold file was read once before the time was over.
    pub is_early: bool,
}

impl Load<'_> {
    /// Connects, calls `begin`, makes the requests, and calls `end`.
    pub fn run(&self, begin: impl FnOnce(), end: impl FnOnce()) -> Result<Seen, Problem> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Problem::of("the clients' runtime", e))?;
        runtime.block_on(async {
            let late = |_| Problem::Failed(format!("no response in {} s", PATIENCE.as_secs()));
            let all = timeout(PATIENCE, self.connect()).await.map_err(late)??;
            begin();
            let course = Course::new(self);
            let cpu = cpu_of_thread();
            let requests = all
                .into_iter()
                .zip(0..)
                .map(|((kind, sender), number)| course.follow(kind, number, sender));
            let done = timeout(self.time + PATIENCE, try_join_all(requests)).await;
            let cpu = cpu_of_thread() - cpu;
            end();
            done.map_err(late)??;
            Ok(Seen {
                seconds: course.begun.elapsed().as_secs_f64(),
                cpu,
                is_early: course.is_early.get(),
                tapes: course.tapes.map(RefCell::into_inner),
            })
        })
    }

    /// All connections, each of which has made its first requests.
    async fn connect(&self) -> Result<Vec<(Kind, Client)>, Problem> {
        let mut all = Vec::new();
        for (kind, count) in Kind::ALL.into_iter().zip(self.connections) {
            for _ in 0..count {
                let mut client = Client::connect(self.address).await?;
                for i in 0..LEAD {
                    client.get(self.hot_file(i), self.ground.size).await?;
                }
                all.push((kind, client));
            }
        }
        Ok(all)
    }

    /// The hot file that a random number draws.
    fn hot_file(&self, random: u64) -> Name {
        Name {
            kind: Kind::Hot,
            number: (random % u64::from(self.ground.count(Kind::Hot))) as u32,
        }
    }
}

/// The measured part of a turn, which all connections share.
struct Course<'a> {
    load: &'a Load<'a>,
    begun: Instant,
    /// The cold files in the order of this turn.
    cold: Vec<Name>,
    next_cold: Cell<usize>,
    is_early: Cell<bool>,
    tapes: [RefCell<Tape>; 2],
}

impl<'a> Course<'a> {
    fn new(load: &'a Load<'a>) -> Course<'a> {
        let mut cold: Vec<Name> = load.ground.names(Kind::Cold).collect();
        cold.sort_by_key(|name| mix(load.seed ^ u64::from(name.number)));
        Course {
            load,
            begun: Instant::now(),
            cold,
            next_cold: Cell::new(0),
            is_early: Cell::new(false),
            tapes: Default::default(),
        }
    }

    /// The requests of one connection.
    async fn follow(&self, kind: Kind, number: u64, mut client: Client) -> Result<(), Problem> {
        let mut random = mix(self.load.seed ^ number << 32);
        while let Some(name) = self.next(kind, &mut random) {
            let begun = Instant::now();
            client.get(name, self.load.ground.size).await?;
            let mut tape = self.tapes[kind as usize].borrow_mut();
            tape.note(begun.elapsed(), None, None);
        }
        Ok(())
    }

    /// The next file of a connection; `None` at the end of the turn.
    fn next(&self, kind: Kind, random: &mut u64) -> Option<Name> {
        let is_over = self.begun.elapsed() >= self.load.time || self.load.stop.asked();
        if is_over || self.is_early.get() {
            return None;
        }
        match kind {
            Kind::Hot => {
                *random = mix(*random);
                Some(self.load.hot_file(*random))
            }
            Kind::Cold => {
                let next = self.cold.get(self.next_cold.get()).copied();
                self.next_cold.set(self.next_cold.get() + 1);
                self.is_early.set(next.is_none());
                next
            }
        }
    }
}

/// One connection.
struct Client(SendRequest<Empty<Bytes>>);

impl Client {
    async fn connect(address: SocketAddr) -> Result<Client, Problem> {
        let failed = |e: &dyn Display| Problem::Failed(format!("cannot connect: {e}"));
        let stream = TcpStream::connect(address).await.map_err(|e| failed(&e))?;
        stream.set_nodelay(true).map_err(|e| failed(&e))?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|e| failed(&e))?;
        // An error of the connection is one of its request, too.
        tokio::spawn(connection);
        Ok(Client(sender))
    }

    /// Requests a file of this size, and checks its length and some of its bytes.
    async fn get(&mut self, name: Name, size: u64) -> Result<(), Problem> {
        let failed = |e: &dyn Display| Problem::Failed(format!("{name}: {e}"));
        let request = Request::get(format!("/{name}"))
            .header(HOST, "localhost")
            .body(Empty::new())
            .map_err(|e| failed(&e))?;
        self.0.ready().await.map_err(|e| failed(&e))?;
        let response = self.0.send_request(request).await;
        let mut response = response.map_err(|e| failed(&e))?;
        if response.status() != StatusCode::OK {
            return Err(failed(&format_args!(
                "the response is {}",
                response.status()
            )));
        }
        let mut length = 0;
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|e| failed(&e))?;
            let part = frame.into_data().unwrap_or_default();
            if let Some(at) = name.first_wrong(length, &part) {
                return Err(failed(&format_args!("byte {at} of the response is wrong")));
            }
            length += part.len() as u64;
        }
        match length == size {
            true => Ok(()),
            false => Err(failed(&format_args!(
                "the response has {length} bytes, and the file has {size}"
            ))),
        }
    }
}

/// Seconds of processor time of this thread.
fn cpu_of_thread() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
