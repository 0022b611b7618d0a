//! The clients of a turn: connections that are kept alive, each with one request at a time, in one
//! thread.
//!
//! ```text
//!  connect all ─ a few requests on each ─ begin ─┬ hot  connection: any hot file ─► check ─► note ─► again
//!                                                ├ cold connection: the next cold file, each once
//!                                                └ api  connection: a response that needs no file
//! ```
//! In a paced turn the cold connections request hot files instead, together at a given rate.
//!
//! A turn ends when its time is over, or when each cold file was read once: another response of it
//! would come from the page cache.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::content::{API, API_ANSWER, Kind, Name};
use super::ground::Ground;
use crate::harness::class::Tape;
use nowait_cli::scramble::mix;

/// The requests of each connection that are not measured. They start the server's threads.
const LEAD: u64 = 4;
/// The time that a server gets for its last responses.
const PATIENCE: Duration = Duration::from_secs(60);

/// The classes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Hot,
    Cold,
    Api,
}

impl Class {
    /// All classes, in the order of the results.
    pub const ALL: [Class; 3] = [Class::Hot, Class::Cold, Class::Api];

    pub fn word(self) -> &'static str {
        match self {
            Class::Hot => "hot",
            Class::Cold => "cold",
            Class::Api => "api",
        }
    }
}

/// One request.
enum Target {
    File(Name),
    Api,
}

/// The requests of a turn.
pub struct Load<'a> {
    pub address: SocketAddr,
    pub ground: &'a Ground,
    /// Connections of each class.
    pub connections: [u32; 3],
    /// In a paced turn, the requests per second of the cold connections, which request hot files.
    pub pace: Option<f64>,
    pub time: Duration,
    pub seed: u64,
    pub stop: &'a Stop,
}

/// The responses of a turn.
pub struct Seen {
    /// The responses of each class.
    pub tapes: [Tape; 3],
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
                .map(|((class, sender), number)| course.follow(class, number, sender));
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
    async fn connect(&self) -> Result<Vec<(Class, Client)>, Problem> {
        let mut all = Vec::new();
        for (class, count) in Class::ALL.into_iter().zip(self.connections) {
            for _ in 0..count {
                let mut client = Client::connect(self.address).await?;
                for i in 0..LEAD {
                    client.get(self.hot_file(i), self.ground.size).await?;
                }
                all.push((class, client));
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
    tapes: [RefCell<Tape>; 3],
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
    async fn follow(&self, class: Class, number: u64, mut client: Client) -> Result<(), Problem> {
        let mut random = mix(self.load.seed ^ number << 32);
        for i in 0.. {
            self.wait_for_turn(class, number, i).await;
            let Some(target) = self.next(class, &mut random) else {
                break;
            };
            let begun = Instant::now();
            match target {
                Target::File(name) => client.get(name, self.load.ground.size).await?,
                Target::Api => client.ask_api().await?,
            }
            let mut tape = self.tapes[class as usize].borrow_mut();
            tape.note(begun.elapsed(), None, None);
        }
        Ok(())
    }

    /// Waits until a connection may make its request with this index.
    async fn wait_for_turn(&self, class: Class, number: u64, index: u64) {
        if let (Class::Cold, Some(pace)) = (class, self.load.pace) {
            let count = u64::from(self.load.connections[Class::Cold as usize]);
            let before = index * count + number % count;
            let due = self.begun + Duration::from_secs_f64(before as f64 / pace);
            let end = self.begun + self.load.time;
            tokio::time::sleep_until(due.min(end).into()).await;
        }
    }

    /// The next request of a connection; `None` at the end of the turn.
    fn next(&self, class: Class, random: &mut u64) -> Option<Target> {
        let is_over = self.begun.elapsed() >= self.load.time || self.load.stop.asked();
        if is_over || self.is_early.get() {
            return None;
        }
        match class {
            Class::Cold if self.load.pace.is_none() => {
                let next = self.cold.get(self.next_cold.get()).copied();
                self.next_cold.set(self.next_cold.get() + 1);
                self.is_early.set(next.is_none());
                next.map(Target::File)
            }
            Class::Hot | Class::Cold => {
                *random = mix(*random);
                Some(Target::File(self.load.hot_file(*random)))
            }
            Class::Api => Some(Target::Api),
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
        let mut response = self.request(&format!("/{name}")).await?;
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

    /// Makes the request that needs no file, and checks its response.
    async fn ask_api(&mut self) -> Result<(), Problem> {
        let response = self.request(API).await?;
        let body = response.collect().await;
        match body.is_ok_and(|body| body.to_bytes() == API_ANSWER) {
            true => Ok(()),
            false => Err(Problem::Failed(format!("{API}: the response is wrong"))),
        }
    }

    async fn request(&mut self, path: &str) -> Result<Response<Incoming>, Problem> {
        let failed = |e: &dyn Display| {
            let path = path.trim_start_matches('/');
            Problem::Failed(format!("{path}: {e}"))
        };
        let request = Request::get(path)
            .header(HOST, "localhost")
            .body(Empty::new())
            .map_err(|e| failed(&e))?;
        self.0.ready().await.map_err(|e| failed(&e))?;
        let response = self.0.send_request(request).await;
        let response = response.map_err(|e| failed(&e))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(failed(&format_args!("the response is {status}"))),
        }
    }
}

/// Seconds of processor time of this thread.
fn cpu_of_thread() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
