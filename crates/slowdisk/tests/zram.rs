//! A device in memory: there while it is held, and gone afterwards.

use std::fs;
use std::path::Path;

use slowdisk::Zram;

#[test]
fn it_is_a_device_of_its_size_and_gone_with_its_owner() {
    slowdisk::require!(Zram::available());
    let zram = Zram::new(8 << 20).unwrap();
    let path = zram.path().to_owned();
    fs::write(&path, vec![7u8; 8 << 20]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![7u8; 8 << 20]);
    let entry = Path::new("/sys/block").join(path.file_name().unwrap());
    assert!(entry.exists());
    drop(zram);
    assert!(!entry.exists());
}
