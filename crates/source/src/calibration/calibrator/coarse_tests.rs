//! The time by sentences alone, and what other programs are given then.

use std::os::unix::net::UnixDatagram;

use horolog_time::{NS_PER_S, Span};

use super::tests::World;
use crate::calibration::config::tests::config;
use crate::gnss::CollectedReceiverInput;
use crate::pulse::replay::PulseReplay;
use crate::{CalibrationConfig, ParsedSentence, SentenceCounts};

#[test]
fn sentences_alone_determine_the_time_to_a_second() {
    let mut world = World::new(&config(None), Span::from_ms(7_000));
    (0..10).for_each(|_| world.run(PulseReplay::default()));
    let report = world.report().unwrap();
    assert_eq!(report.uncertainty, Span::from_ms(1_000));
    let status = world.status();
    assert_eq!(status.state, "coarse");
    let counted = ["accepted", "no_pulse"].map(|name| status.sentences.get(name));
    assert_eq!(counted, [8, 2], "three agree from the third on");
    world.is_valid = false;
    (0..15).for_each(|_| world.run(PulseReplay::default()));
    assert_eq!(world.reason(), "the receiver has no fix");
    world.is_valid = true;
    world.receiver_off_s = 1024 * 7 * 86_400;
    (0..15).for_each(|_| world.run(PulseReplay::default()));
    assert!(world.reason().contains("1024 weeks"), "{}", world.reason());
}

#[test]
fn coarse_time_is_written_to_outputs_only_where_requested() {
    for (coarse_output, delivered) in [(false, 0), (true, 8)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chrony.sock");
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_nonblocking(true).unwrap();
        let configured =
            CalibrationConfig { sock_outputs: vec![path], coarse_output, ..config(None) };
        let mut world = World::new(&configured, Span::from_ms(7_000));
        let notices = world.calibrator.take_notices();
        assert_eq!(notices.iter().any(|notice| notice.contains("--coarse-output")), !coarse_output);
        (0..10).for_each(|_| world.run(PulseReplay::default()));
        let output = &world.status().outputs[0];
        assert_eq!((output.delivered, output.reason.is_none()), (delivered, coarse_output));
        assert_eq!(std::iter::from_fn(|| reader.recv(&mut [0; 64]).ok()).count() as u64, delivered);
    }
}

#[test]
fn what_names_no_time_is_counted_by_its_reason() {
    let mut world = World::new(&config(None), Span::ZERO);
    world.sends = false;
    let cases = [
        ("GNRMC,,V,,,,,,,,,,N", "void", "the receiver has no fix yet"),
        ("GNRMC,081253,A,,,,,,,270219,,,N", "not_valid", "the receiver has no fix: mode N"),
        ("GNRMC,081253,A,,,,,,,270219,,,E", "estimated", "the receiver has no fix: mode E"),
        ("GNRMC,081253,A,,,,,,,270219,,,M", "manual", "the receiver has no fix: mode M"),
        ("GNRMC,081253,A,,,,,,,270219,,,S", "simulated", "the receiver has no fix: mode S"),
        ("GPZDA,081253,,,,00,00", "no_time", "the receiver has no time yet"),
        ("GNRMC,081253,A,,,,,,,300219,,,A", "unreadable", "invalid sentence: its date"),
    ];
    for (text, counted, why) in cases {
        let read = ParsedSentence::parse(text).unwrap();
        world.calibrator.push_sentence(read, world.readings(100).monotonic);
        world.run(PulseReplay::default());
        assert_eq!(world.status().sentences.get(counted), 1, "{text}");
        assert!(world.reason().starts_with(why), "{}", world.reason());
    }
    let counts =
        SentenceCounts { checksum: 2, no_checksum: 3, garbled: 4, ..SentenceCounts::default() };
    let input = CollectedReceiverInput { counts, ..CollectedReceiverInput::default() };
    (0..2).for_each(|_| world.calibrator.push_line_input(&input));
    // Opened anew, with fewer of each.
    let counts = SentenceCounts { checksum: 1, ..SentenceCounts::default() };
    world
        .calibrator
        .push_line_input(&CollectedReceiverInput { counts, ..CollectedReceiverInput::default() });
    let sentences = world.status().sentences;
    let counted = ["checksum", "no_checksum", "garbled", "overlong"];
    assert_eq!(counted.map(|name| sentences.get(name)), [3, 3, 4, 0]);
}

#[test]
fn a_receiver_without_a_fix_does_not_revoke_the_time_of_another() {
    let mut world = World::new(&config(None), Span::from_ms(7_000));
    let void = ParsedSentence::parse("GARMC,,V,,,,,,,,,,N").unwrap();
    for second in 0..30 {
        world.sends = second % 2 == 0;
        world.calibrator.push_sentence(void, world.readings(50).monotonic);
        world.run(PulseReplay::default());
        assert!(second < 5 || world.report().is_ok(), "{second}: {:?}", world.report());
    }
    assert_eq!(world.status().sentences.get("void"), 30);
    // Its ZDA, or that of either, names no time.
    world.sends = false;
    for second in 0..15 {
        let zda = ParsedSentence { talker: *b"GA", reports_fix: false, ..named(&world) };
        world.calibrator.push_sentence(void, world.readings(50).monotonic);
        world.calibrator.push_sentence(Ok(zda), world.readings(60).monotonic);
        world.run(PulseReplay::default());
        assert_eq!(world.report().is_ok(), second < 8, "{second}");
    }
}

/// A sentence of this second.
fn named(world: &World) -> ParsedSentence {
    let utc = super::tests::START + Span::from_ns(world.second * NS_PER_S);
    ParsedSentence { talker: *b"GN", utc, is_leap_second: false, reports_fix: true }
}
