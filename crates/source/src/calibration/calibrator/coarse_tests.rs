//! The time by sentences alone, and what other programs are given then.

use std::os::unix::net::UnixDatagram;

use horolog_time::Span;

use super::tests::World;
use crate::CalibrationConfig;
use crate::calibration::config::tests::config;
use crate::pulse::replay::Replay;

#[test]
fn sentences_alone_tell_the_time_to_half_a_second() {
    let mut world = World::new(&config(None), Span::from_ms(7_000));
    (0..10).for_each(|_| world.run(Replay::default()));
    let report = world.report().unwrap();
    assert_eq!(report.uncertainty, Span::from_ms(500));
    let status = world.status();
    assert_eq!(status.state, "coarse");
    let counted = ["accepted", "no_pulse"].map(|name| status.sentences.get(name));
    assert_eq!(counted, [8, 2], "three agree from the third on");
    world.is_valid = false;
    (0..15).for_each(|_| world.run(Replay::default()));
    assert_eq!(world.reason(), "the receiver has no fix");
    world.is_valid = true;
    world.receiver_off_s = 1024 * 7 * 86_400;
    (0..15).for_each(|_| world.run(Replay::default()));
    assert!(world.reason().contains("1024 weeks"), "{}", world.reason());
}

#[test]
fn what_sentences_alone_say_is_given_on_where_that_was_asked_for() {
    for (coarse_output, given) in [(false, 0), (true, 8)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chrony.sock");
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_nonblocking(true).unwrap();
        let asked = CalibrationConfig { sock_outputs: vec![path], coarse_output, ..config(None) };
        let mut world = World::new(&asked, Span::from_ms(7_000));
        let told = world.calibrator.take_notices();
        assert_eq!(told.iter().any(|notice| notice.contains("--coarse-output")), !coarse_output);
        (0..10).for_each(|_| world.run(Replay::default()));
        let output = &world.status().outputs[0];
        assert_eq!((output.given, output.reason.is_none()), (given, coarse_output));
        assert_eq!(std::iter::from_fn(|| reader.recv(&mut [0; 64]).ok()).count() as u64, given);
    }
}
