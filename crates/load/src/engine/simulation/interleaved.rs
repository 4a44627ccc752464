//! Interleaved mode against servers with and without support for it.

use super::*;

/// All but each client's first request refer to a reply, in the first trial and all the more later.
fn assert_interleaved<P: LaneDevice>(scene: &mut SimulatedLane<P>) {
    scene.interleaved = true;
    let first = scene.run_trial();
    let clients = u64::from(CLIENTS);
    assert_eq!((first.received, first.interleaved), (2000, 2000 - clients));
    assert_eq!((first.response.count(), first.response.max()), (2000, Some(700)));
    assert_eq!((first.invalid, first.rtt.count()), ([0; InvalidReplyReason::ALL.len()], 2000));
    let second = scene.run_trial();
    assert_eq!((second.received, second.interleaved), (2000, 2000));
    scene.interleaved = false;
    assert_eq!(scene.run_trial().interleaved, 0);
}

#[test]
fn interleaved_replies_are_distinguished_from_basic_ones_through_frames_and_sockets() {
    let mut frames = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    frames.path().departures = Some(HashMap::new());
    assert_interleaved(&mut frames);
    let mut sockets = SimulatedLane::with_sockets(answer);
    sockets.run = 1;
    let worlds = sockets.port.sockets.iter_mut();
    worlds.for_each(|world| world.departures = Some(HashMap::new()));
    assert_interleaved(&mut sockets);
}

#[test]
fn a_server_without_interleaved_mode_answers_in_basic_mode() {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    scene.interleaved = true;
    let counts = scene.run_trial();
    assert_eq!((counts.received, counts.interleaved), (2000, 0));
    assert_eq!(counts.response.count(), 2000);
}
