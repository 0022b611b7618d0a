//! `nowait scan` prints the entries of directories in the order in which they are found.
//!
//! ```text
//!  PATH ─► a directory: a walk, one level deep without -r ─► Entry ─► of a wanted type? ─► Printer
//!      └─► another file: its own metadata ───────────────────►┘
//! ```
//! Entries stream. Memory holds a bounded number of entries of the walk, and of batches.

mod entry;
mod field;
mod format;
mod mode;
mod owner;
mod printer;

use std::path::Path;
use std::process::ExitCode;

use nowait::scan::{Batch, Xattrs};
use nowait::{ErrorKind, FileType, Metadata, StatxMask, walk};
use nowait_page_cache::{Batches, report_cycle};
use rustix::fs::CWD;

use crate::messages::{Messages, say};
use crate::name::plural;
use crate::paths::PathList;
use crate::problem::{INTERRUPTED, Problem};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::terminal::Terminal;

use entry::Entry;
use field::Fields;
use format::Format;
use printer::{Form, Printer};

/// Prints the entries of directories, for scripts, in the order in which they are found.
#[derive(clap::Args)]
#[command(
    after_long_help = r#"Entries are printed as they are found. They are not sorted, and memory use does not grow with the directory.
A PATH that is a directory, or a symbolic link to one, is listed. Any other PATH is printed itself. Symbolic
links below a PATH are not followed. Names that begin with a dot are printed; `.` and `..` are not. A directory
that is one of its own ancestors, by a bind mount, is printed and not listed again; that is a failure, as in
find.

A line has the path of an entry: PATH, `/` and the names below it. Names are printed unchanged, as by find.
Only on a terminal are names with control characters printed in shell quotes ($'a\nb'). A name may contain
a line break: use -0 or --json in scripts that must not fail.

Fields (--fields), with the directives of --format in parentheses:
  path (%p)       PATH and the names below it
  name (%f)       the last component
  dir (%h)        the path without the last component
  start (%H)      the PATH below which the entry was found
  relative (%P)   the path without PATH
  depth (%d)      1 for an entry of PATH
  type (%y)       f d l p s c b; U: unknown
  size (%s)       bytes
  allocated       bytes; %b in units of 512 bytes, %k in KiB
  mode (%m)       permission bits, octal; %M: as ls -l prints them
  links (%n)      number of names
  user (%u)       owner's name, or the number if there is none; uid (%U)
  group (%g)      group's name, or the number if there is none; gid (%G)
  inode (%i)
  device (%D)     number of the device that holds the file
  target (%l)     of a symbolic link
  mtime (%T@)     seconds since 1970 of the last change of the contents
  atime (%A@)     of the last access
  ctime (%C@)     of the last change of the inode
  btime (%B@)     of the creation
  xattrs          extended attributes: NAME=VALUE, separated by commas

The directives mean the same as in `find -printf`. %t, %a and %c print times as ctime(3) does. After %T, %A,
%C and %B, one of + F Y m d H M can stand for @. The flags, the width and the precision of printf(3) can follow
the %: %-8s, %04m, %.20f. As in find, %m and %d are numbers, and all others are texts, for which the flag 0 has
no effect. \t, \n, \0, \\ and \NNN (octal) are escapes. Unlike in find, a line break ends each entry (a NUL
byte with -0), and several --type print the entries of all their types.
`?` means unknown.

JSON (--json): one object a line. Its keys are the fields. null means unknown, or that there is none. Later
programs may add keys.
  path, name, dir, start, relative, depth, size, allocated, links, uid, user,
  gid, group, inode, device, target
               as above
  type         file, directory, symlink, fifo, socket, character, block or
               unknown
  mode         permission bits in octal, as text
  mtime        seconds; mtime_ns has the nanoseconds. atime, ctime and btime
               have such keys, too
  xattrs       list of {"name", "value"}
  KEY_hex      bytes of a value in hexadecimal, only if it is not UTF-8
By default: path, type, inode, mode, links, uid, gid, user, group, size, allocated, mtime, mtime_ns, target.

Examples:
  nowait scan -r --type f -0 /srv | xargs -0 sha256sum
  nowait scan -r --format '%s %p' /srv | sort -n | tail
  nowait scan -r --json /srv | jq -r 'select(.links > 1).path'

Exit status:
  0    success
  1    some files failed; each failure is reported on standard error
  2    wrong usage
  130  interrupted"#
)]
#[command(mut_arg("paths", |arg| arg.default_value(".")))]
pub struct Args {
    /// Print everything below directories, not only their own entries
    #[arg(short, long)]
    recursive: bool,

    /// Print entries at most N levels below a PATH. Implies -r
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_depth: Option<u32>,

    /// Do not enter directories on other filesystems than their PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Print only entries of these types: a list of f (regular file), d (directory), l (symbolic
    /// link), p (FIFO), s (socket), c (character device) and b (block device)
    #[arg(long = "type", value_name = "TYPES", value_delimiter = ',', value_parser = field::file_type)]
    types: Vec<FileType>,

    /// End each entry with a NUL byte instead of a line break, as --files0-from and `xargs -0` read
    /// them
    #[arg(short = '0', long = "null", conflicts_with = "json")]
    null: bool,

    /// Print these fields of each entry, separated by tabs. The list is below
    #[arg(long, value_name = "LIST")]
    fields: Option<Fields>,

    /// Print each entry by this format, for example '%p\t%s\t%m'. The directives are below
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["fields", "json", "xattr"])]
    format: Option<Format>,

    /// Print extended attributes, too: the field xattrs
    #[arg(long)]
    xattr: bool,

    #[command(flatten)]
    list: PathList,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Args {
    fn form(&self) -> Form {
        let mut fields = match (&self.fields, self.json) {
            (Some(fields), _) => fields.clone(),
            (None, true) => Fields::of_json(),
            (None, false) => Fields::path(),
        };
        if self.xattr {
            fields.add_xattrs();
        }
        match &self.format {
            _ if self.json => Form::Json(fields),
            Some(format) => Form::Text(format.clone()),
            None => Form::Text(Format::tabbed(&fields)),
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(print(args).unwrap_or_else(|problem| problem.report()))
}

fn print(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let form = args.form();
    let mut scanner = Scanner {
        args,
        mask: form.mask(),
        xattrs: match form.has_xattrs() {
            true => Xattrs::Values,
            false => Xattrs::None,
        },
        printer: Printer::new(form, args.null, Terminal::look()),
        messages: &messages,
        progress,
        stop: &stop,
    };
    args.list
        .each(&messages, &stop, |path| scanner.path(path))?;
    let Scanner {
        printer, progress, ..
    } = scanner;
    drop(progress);
    let printed = printer.end()?;
    if stop.asked() {
        let entries = plural(printed, "entry");
        say(format_args!("nowait: interrupted after {entries}"));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(messages.exit_code())
}

/// Prints entries.
struct Scanner<'a> {
    args: &'a Args,
    /// The fields of statx(2) that are printed.
    mask: StatxMask,
    xattrs: Xattrs,
    printer: Printer,
    messages: &'a Messages,
    progress: Progress,
    stop: &'a Stop,
}

impl Scanner<'_> {
    /// Lists a directory, or prints another file.
    fn path(&mut self, path: &Path) -> Result<(), Problem> {
        let mask = self.mask | StatxMask::TYPE;
        let statx = |flags| Metadata::statx(CWD, path, libc::AT_NO_AUTOMOUNT | flags, mask);
        let is_directory = statx(0).is_ok_and(|target| target.is_dir());
        if is_directory {
            return self.walk(path);
        }
        match statx(libc::AT_SYMLINK_NOFOLLOW) {
            Err(error) => self.messages.error(path, true, &error),
            Ok(metadata) if self.is_wanted(metadata.file_type()) => {
                let entry = Entry::given(path, &metadata, self.xattrs, self.messages);
                self.printer.entry(&entry, self.messages);
                self.printer.flush(self.messages)?;
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// Prints the entries of a directory, and with -r everything below it.
    fn walk(&mut self, start: &Path) -> Result<(), Problem> {
        let depth = match (self.args.max_depth, self.args.recursive) {
            (Some(depth), _) => depth as usize,
            (None, true) => usize::MAX,
            (None, false) => 1,
        };
        let mut options = walk::Options::new()
            .max_depth(depth)
            .xattrs(self.xattrs)
            .one_filesystem(self.args.one_file_system);
        if !self.mask.is_empty() {
            options = options.metadata(self.mask);
        }
        let Some(batches) = Batches::open(start, &options, self.messages, self.stop) else {
            return Ok(());
        };
        for found in batches {
            match found {
                Ok(found) => self.batch(start, &found)?,
                // Entries are missing in the output, also below a bind mount. find(1) reports this,
                // too.
                Err(error) if error.kind() == ErrorKind::Cycle => {
                    report_cycle(self.messages, error.path().unwrap_or(start));
                }
                Err(error) => self.messages.error(start, false, &error),
            }
            if !self.printer.is_watched() {
                self.progress.at(self.printer.entries(), String::new());
            }
        }
        Ok(())
    }

    fn batch(&mut self, start: &Path, found: &Batch) -> Result<(), Problem> {
        let directory = found.dir().path();
        for entry in found.iter() {
            let Some(entry) = Entry::found(start, &directory, &entry, self.messages) else {
                continue;
            };
            if self.is_wanted(entry.kind) {
                self.printer.entry(&entry, self.messages);
            }
        }
        self.printer.flush(self.messages)
    }

    fn is_wanted(&self, kind: FileType) -> bool {
        self.args.types.is_empty() || self.args.types.contains(&kind)
    }
}
