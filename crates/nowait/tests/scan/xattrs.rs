//! Extended attributes: none, names, or names and values, as the calls by path return them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use nowait::scan::{Options, Order, Xattrs, readahead};
use rustix::fs::XattrFlags;
use slowdisk::Filesystem;

use crate::common::by_workers::found;
use crate::common::mounts::mounted;
use crate::directories::{engines, with_metadata};

type Attributes = BTreeMap<OsString, Option<Vec<u8>>>;

/// Files with some, many and large attributes, a link with its own, and a file with none.
fn sample(dir: &Path) -> BTreeMap<OsString, Attributes> {
    let mut all = BTreeMap::new();
    let mut file = |name: &str, attributes: Vec<(String, Vec<u8>)>| {
        let path = dir.join(name);
        std::fs::write(&path, "").unwrap();
        for (key, value) in &attributes {
            rustix::fs::setxattr(&path, key.as_str(), value, XattrFlags::empty()).unwrap();
        }
        let attributes = attributes
            .into_iter()
            .map(|(key, value)| (key.into(), Some(value)));
        all.insert(OsString::from(name), attributes.collect());
    };
    file("none", vec![]);
    file("one", vec![("user.one".into(), b"value".to_vec())]);
    file("empty", vec![("user.empty".into(), vec![])]);
    file("large", vec![("user.large".into(), vec![0xa5; 1_500])]);
    file(
        "many",
        (0..40)
            .map(|i| (format!("user.number{i}"), vec![i; 3]))
            .collect(),
    );
    let link = dir.join("link");
    std::os::unix::fs::symlink("many", &link).unwrap();
    rustix::fs::lsetxattr(&link, "trusted.of-the-link", b"own", XattrFlags::empty()).unwrap();
    let own = (OsString::from("trusted.of-the-link"), Some(b"own".to_vec()));
    all.insert("link".into(), BTreeMap::from([own]));
    all
}

fn scanned(options: &Options, dir: &Path, caller: bool) -> BTreeMap<OsString, Attributes> {
    let entry = |entry: nowait::Result<nowait::scan::DirEntry>| {
        let entry = entry.unwrap();
        let attributes = entry.xattrs().expect("they were asked for").unwrap();
        let owned = attributes.map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)));
        let owned = owned
            .filter(|(name, _)| name != "security.selinux")
            .collect();
        (entry.file_name().to_owned(), owned)
    };
    let mut scan = options.blocking_open(dir).unwrap();
    found(&mut scan, caller).map(entry).collect()
}

#[test]
fn names_and_values_are_what_the_files_have() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        let mount = mounted!(filesystem);
        let dir = mount.path().join("d");
        std::fs::create_dir(&dir).unwrap();
        let expected = sample(&dir);
        let names_only = |(name, attributes): (&OsString, &Attributes)| {
            let names = attributes.keys().map(|key| (key.clone(), None)).collect();
            (name.clone(), names)
        };
        let names: BTreeMap<OsString, Attributes> = expected.iter().map(names_only).collect();
        for engine in engines() {
            for order in [Order::Unordered, Order::Name] {
                for caller in [true, false] {
                    let only = Options::new().engine(&engine).order(order);
                    let both = with_metadata().engine(&engine).order(order);
                    for options in [only, both] {
                        let found = scanned(&options.clone().xattrs(Xattrs::Values), &dir, caller);
                        assert_eq!(found, expected, "{filesystem} {order:?}");
                        let found = scanned(&options.clone().xattrs(Xattrs::Names), &dir, caller);
                        assert_eq!(found, names, "{filesystem} {order:?}");
                        let none = options.blocking_open(&dir).unwrap();
                        assert!(none.map(Result::unwrap).all(|e| e.xattrs().is_none()));
                    }
                }
            }
        }
        let follow = Options::new().xattrs(Xattrs::Values).follow(true);
        let found = scanned(&follow, &dir, true);
        assert_eq!(
            found["link".as_ref() as &std::ffi::OsStr],
            found["many".as_ref() as &std::ffi::OsStr]
        );
    }
}

#[test]
fn a_filesystem_without_them_says_so_of_each_entry() {
    // procfs has none.
    let scan = Options::new()
        .xattrs(Xattrs::Names)
        .blocking_open("/proc/sys/fs")
        .unwrap();
    let mut entries = 0;
    for entry in scan.map(Result::unwrap) {
        match entry.xattrs().unwrap() {
            Ok(attributes) => assert_eq!(attributes.count(), 0),
            Err(error) => assert_eq!(error.errno(), Some(libc::EOPNOTSUPP)),
        }
        entries += 1;
    }
    assert!(entries > 5);
}

#[test]
fn a_readahead_asks_for_them_on_request() {
    let mount = mounted!(Filesystem::Ext4);
    let dir = mount.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let n = sample(&dir).len() as u64;
    for engine in engines() {
        let ahead = readahead(&dir, &Options::new().xattrs(Xattrs::Names).engine(&engine)).unwrap();
        ahead.blocking_wait();
        assert_eq!((ahead.stats().done, ahead.stats().failed), (n, 0));
    }
}
