//! Reports that outlast their process, and disks that spoil them.

use proptest::prelude::*;

use super::*;

fn entry(number: u8) -> SpoolEntry {
    SpoolEntry {
        id: format!("c-1/n1/load.{number}"),
        campaign: "c-1".parse().unwrap(),
        agent: "n1".parse().unwrap(),
        packed: vec![number; 100],
    }
}

fn opened(directory: &Path) -> Spool {
    let (spool, spoilt) = Spool::open(directory, SpoolLimits::default()).unwrap();
    assert_eq!(spoilt, [] as [PathBuf; 0]);
    spool
}

#[test]
fn reports_outlast_the_process_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/one");
    let mut spool = opened(&path);
    let first = spool.append(&entry(1)).unwrap();
    spool.append(&entry(2)).unwrap();
    spool.save_state(&"state").unwrap();
    drop(spool);
    let mut spool = opened(&path);
    assert_eq!((spool.len(), spool.bytes), (2, spool.report_sizes.values().sum()));
    assert_eq!(spool.next_after(0).unwrap(), Some((first, entry(1))));
    spool.remove(first).unwrap();
    spool.append(&entry(3)).unwrap();
    drop(spool);
    let mut spool = opened(&path);
    for number in [2, 3] {
        let (position, stored) = spool.next_after(0).unwrap().unwrap();
        assert_eq!(stored, entry(number));
        spool.remove(position).unwrap();
    }
    assert!(spool.is_empty() && spool.bytes == 0 && spool.next_after(0).unwrap().is_none());
    assert_eq!(spool.load_state::<String>().unwrap().as_deref(), Some("state"));
}

#[test]
fn half_written_files_are_removed_and_spoilt_ones_put_aside() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = opened(directory.path());
    let position = spool.append(&entry(1)).unwrap();
    let second = spool.append(&entry(2)).unwrap();
    let path = spool.report_path(position);
    drop(spool);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::write(directory.path().join(".new-abc"), "half").unwrap();
    fs::write(directory.path().join("state.json"), "{").unwrap();
    let (mut spool, spoilt) = Spool::open(directory.path(), SpoolLimits::default()).unwrap();
    assert_eq!(spoilt, [path.with_extension("spoilt")]);
    assert_eq!(spool.next_after(0).unwrap(), Some((second, entry(2))));
    assert_eq!(spool.load_state::<String>().unwrap(), None);
    assert!(!directory.path().join(".new-abc").exists());
    assert!(spool.append(&entry(3)).unwrap() > second);
    drop(spool);
    opened(directory.path());
}

#[test]
fn one_that_cannot_be_delivered_is_not_in_the_way_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = opened(directory.path());
    let positions: Vec<_> = (1..=3).map(|number| spool.append(&entry(number)).unwrap()).collect();
    let next = |spool: &mut Spool, behind| spool.next_after(behind).unwrap().unwrap().0;
    assert_eq!(next(&mut spool, 0), positions[0]);
    assert_eq!(next(&mut spool, positions[0]), positions[1]);
    assert_eq!(next(&mut spool, positions[2]), positions[0], "again from the oldest");
    fs::write(spool.report_path(positions[1]), "spoilt meanwhile").unwrap();
    let error = spool.next_after(positions[0]).unwrap_err();
    assert!(matches!(error, SpoolError::Corrupt { .. }), "{error}");
    assert_eq!(next(&mut spool, positions[0]), positions[2]);
    assert_eq!(spool.bytes, spool.report_sizes.values().sum::<u64>());
}

#[test]
fn a_directory_is_one_agents() {
    let directory = tempfile::tempdir().unwrap();
    let spool = opened(directory.path());
    let again = Spool::open(directory.path(), SpoolLimits::default());
    assert!(matches!(again, Err(SpoolError::InUse(_))), "{again:?}");
    drop(spool);
    opened(directory.path());
}

#[test]
fn room_is_bounded_and_no_order_is_taken_on_where_it_is_scarce() {
    let directory = tempfile::tempdir().unwrap();
    let limits = SpoolLimits { reports: 4, bytes: BYTES_MAX };
    let (mut spool, _) = Spool::open(directory.path(), limits).unwrap();
    for number in 0..4 {
        assert_eq!(spool.check_capacity().is_ok(), number < 3, "{number}");
        spool.append(&entry(number)).unwrap();
    }
    let error = spool.append(&entry(4)).unwrap_err().to_string();
    assert!(error.contains("is full (4 reports"), "{error}");
    let (position, _) = spool.next_after(0).unwrap().unwrap();
    spool.remove(position).unwrap();
    spool.append(&entry(5)).unwrap();
    let small = tempfile::tempdir().unwrap();
    let limits = SpoolLimits { reports: 10, bytes: 250 };
    let (mut spool, _) = Spool::open(small.path(), limits).unwrap();
    let error = spool.append(&SpoolEntry { packed: vec![0; 300], ..entry(1) }).unwrap_err();
    assert!(matches!(error, SpoolError::Full { reports: 0, .. }), "{error}");
}

proptest! {
    #[test]
    fn entries_round_trip(
        id in "[a-z0-9/.]{0,100}", packed in proptest::collection::vec(any::<u8>(), 0..300),
        at in any::<u64>(), flip in 1_u8..,
    ) {
        let entry = SpoolEntry { id, packed, ..entry(0) };
        let mut bytes = entry.to_bytes();
        prop_assert_eq!(SpoolEntry::parse(&bytes), Ok(entry.clone()));
        let at = at as usize % bytes.len();
        prop_assert!(SpoolEntry::parse(&bytes[..at]).is_err());
        bytes[at] ^= flip;
        prop_assert_ne!(SpoolEntry::parse(&bytes), Ok(entry));
    }

    #[test]
    fn any_bytes_are_taken_calmly(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = SpoolEntry::parse(&bytes);
    }
}
