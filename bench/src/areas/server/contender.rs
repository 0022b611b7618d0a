//! The contenders: the servers, and how each is started.

use std::io;
use std::net::SocketAddr;

use clap::ValueEnum;

use super::Args;
use super::ground::Ground;
use super::inside::Inside;
use super::nginx::{self, Nginx};
use crate::harness::contender::{Fit, Named};
use crate::harness::tick::Tick;
use crate::harness::usage::Usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait::tokio::File, a stream of 64 KiB pieces
    Nowait,
    /// nowait::tokio::read, the whole file
    NowaitRead,
    /// tokio::fs::File, a stream of 64 KiB pieces
    TokioFs,
    /// The whole file in tokio's spawn_blocking, as tokio::fs::read
    SpawnBlocking,
    /// The whole file in the task, which blocks a thread of the runtime
    Blocking,
    /// ServeDir of tower-http
    ServeDir,
    /// ServeDir of tower-http over nowait
    ServeDirNowait,
    /// nginx with `sendfile on` and `aio threads`
    Nginx,
}

/// A running server. Dropping it ends it.
pub enum Server {
    Inside(Inside),
    Nginx(Nginx),
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        matches!(self, Name::Nowait | Name::NowaitRead | Name::ServeDirNowait)
    }
}

impl Name {
    pub fn fits(self) -> Fit {
        match self {
            Name::Nginx => nginx::fits(),
            _ => Fit::Yes,
        }
    }

    /// Starts the server.
    pub fn start(self, args: &Args, ground: &Ground) -> io::Result<Server> {
        let threads = args.threads as usize;
        match self {
            Name::Nginx => Nginx::start(&ground.root, threads).map(Server::Nginx),
            _ => Inside::start(self, &ground.root, threads).map(Server::Inside),
        }
    }
}

impl Server {
    pub fn address(&self) -> SocketAddr {
        match self {
            Server::Inside(inside) => inside.address,
            Server::Nginx(nginx) => nginx.address,
        }
    }

    /// The timer that the server's runtime serves; `None` of another process.
    pub fn tick(&self) -> Option<&Tick> {
        match self {
            Server::Inside(inside) => Some(&inside.tick),
            Server::Nginx(_) => None,
        }
    }

    /// Seconds of processor time of the process or processes with the server.
    pub fn cpu(&self) -> f64 {
        match self {
            Server::Inside(_) => Usage::of_self().cpu(),
            Server::Nginx(nginx) => nginx.cpu(),
        }
    }

    /// The part of a processor time that clients in this process have not used.
    pub fn without_clients(&self, cpu: f64, clients: f64) -> f64 {
        match self {
            Server::Inside(_) => (cpu - clients).max(0.0),
            Server::Nginx(_) => cpu,
        }
    }
}
