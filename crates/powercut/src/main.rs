//! A writer that reports its durable records, and a check of the disk after a power cut.
//!
//! `powercut write DIR` runs in a guest, which `scripts/test-powercut.sh` kills. Each face of
//! nowait writes records to its own file. A line `ACK FACE NUMBER` on standard output means that a
//! record and all records before it are durable. `powercut check DIR LOG` runs on the host. It
//! compares the files with the guest's lines, and fails if an acknowledged record is missing or
//! torn.

mod aio;
mod check;
mod face;
mod record;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use face::Face;

/// Writes records that must outlast a power cut, and checks that they did.
#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Writes records until it is killed, and prints `ACK FACE NUMBER` for each that is durable.
    Write {
        /// The directory for the files, one for each face.
        directory: PathBuf,
        /// The faces to use. The process that is preloaded with libnowait_aio.so uses the aio
        /// faces.
        #[arg(long, value_enum, value_delimiter = ',', required = true)]
        faces: Vec<Face>,
        /// Acknowledges records that are not durable. A check after a power cut must then fail.
        #[arg(long)]
        early: bool,
    },
    /// Checks that the records which LOG acknowledges are in the files of a directory.
    Check {
        /// The directory that the writer used.
        directory: PathBuf,
        /// The writer's standard output; its last line may be cut.
        log: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Write {
            directory,
            faces,
            early,
        } => face::write(&directory, &faces, early),
        Verb::Check { directory, log } => check::check(&directory, &log),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("powercut: {error}");
            ExitCode::FAILURE
        }
    }
}
