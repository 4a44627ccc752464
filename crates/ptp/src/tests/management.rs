//! What management is told, and what it is refused.

use horolog_wire::ptp::management::data::{
    ClockDescription, DefaultDataSet, FixedLengthData, ParentDataSet, PortDataSet,
    TimePropertiesDataSet, id,
};
use horolog_wire::ptp::management::{
    ManagementAction, ManagementErrorId, ManagementErrorTlv, ManagementHeader, ManagementTlv,
};

use super::*;

/// A question as `pmc` asks it: with as much data as the answer has, or none.
fn question(action: ManagementAction, id: u16, data: &[u8]) -> Vec<u8> {
    let managed = ManagementTlv { id, data };
    let mut suffix = vec![0; managed.tlv_len()];
    managed.emit(&mut suffix);
    let addressee =
        ManagementHeader { target: PortIdentity::ALL, starting_hops: 3, hops: 1, action };
    bytes(&Message {
        header: header(),
        body: PtpMessageBody::Management(addressee),
        suffix: &suffix,
    })
}

fn answer_to(port: &mut ClockPort, question: &[u8]) -> Sent {
    let mut out = RecordingOutbox::default();
    port.receive(&arrival(question), &GOOD, START, &mut out);
    assert_eq!(out.0.len(), 1, "{:?}", port.counts);
    out.0.remove(0)
}

/// What is told of this.
fn managed_data(id: u16) -> Vec<u8> {
    let (mut port, _) = master();
    let sent = answer_to(&mut port, &question(ManagementAction::Get, id, &[]));
    let tlv = sent.message().tlvs().next().unwrap().unwrap();
    let managed = ManagementTlv::from_tlv(&tlv).unwrap().unwrap();
    assert_eq!(managed.id, id);
    managed.data.to_vec()
}

/// What is refused, and why.
fn refused(
    port: &mut ClockPort,
    action: ManagementAction,
    id: u16,
) -> (ManagementAction, ManagementErrorId) {
    let sent = answer_to(port, &question(action, id, &[1, 0]));
    let PtpMessageBody::Management(addressee) = sent.message().body else { panic!() };
    let tlv = sent.message().tlvs().next().unwrap().unwrap();
    let refused = ManagementErrorTlv::from_tlv(&tlv).unwrap().unwrap();
    assert_eq!(refused.id, id);
    (addressee.action, refused.code)
}

#[test]
fn a_response_goes_to_its_requester() {
    let (mut port, _) = master();
    let question = question(ManagementAction::Get, id::PRIORITY1, &[0, 0]);
    let sent = answer_to(&mut port, &question);
    assert_eq!(
        (sent.to, sent.event, sent.bytes.len()),
        (PtpDestination::Manager(CLIENT_ADDRESS, CLIENT_PORT), false, question.len())
    );
    let action = ManagementAction::Response;
    let expected = ManagementHeader { target: CLIENT, starting_hops: 2, hops: 2, action };
    assert_eq!(sent.message().body, PtpMessageBody::Management(expected));
    assert_eq!(sent.message().header.sequence_id, 0xabcd);
    let mut out = RecordingOutbox::default();
    port.receive(&ReceivedPtpMessage { group: true, ..arrival(&question) }, &GOOD, START, &mut out);
    assert_eq!(out.0[0].to, PtpDestination::Group);
}

#[test]
fn the_data_sets_are_the_clock_s() {
    let default = DefaultDataSet::parse(&managed_data(id::DEFAULT_DATA_SET)).unwrap();
    assert_eq!((default.two_step, default.slave_only, default.ports), (true, false, 1));
    assert_eq!((default.clock.identity, default.clock.clock_class), (OWN, 6));
    let parent = ParentDataSet::parse(&managed_data(id::PARENT_DATA_SET)).unwrap();
    assert_eq!(parent.port, PortIdentity { clock: OWN, port: 0 });
    assert_eq!(parent.grandmaster, default.clock);
    let time = TimePropertiesDataSet::parse(&managed_data(id::TIME_PROPERTIES_DATA_SET)).unwrap();
    assert_eq!(time, TimePropertiesDataSet { utc_offset: 37, flags: 0x3c, time_source: 0x20 });
    let port = PortDataSet::parse(&managed_data(id::PORT_DATA_SET)).unwrap();
    assert_eq!((port.state, port.log_announce, port.log_sync), (6, 1, 0));
    assert_eq!((port.delay_mechanism, port.version, port.announce_receipt_timeout), (1, 2, 3));
    let description = managed_data(id::CLOCK_DESCRIPTION);
    let description = ClockDescription::parse(&description).unwrap();
    assert_eq!(description.protocol_address, [192, 0, 2, 1]);
    assert_eq!(description.profile, [0, 0x1b, 0x19, 0, 1, 0]);
}

#[test]
fn single_values_have_two_bytes() {
    for (id, data) in [
        (id::PRIORITY1, [128, 0]),
        (id::PRIORITY2, [128, 0]),
        (id::DOMAIN, [0, 0]),
        (id::SLAVE_ONLY, [0, 0]),
        (id::LOG_ANNOUNCE_INTERVAL, [1, 0]),
        (id::ANNOUNCE_RECEIPT_TIMEOUT, [3, 0]),
        (id::LOG_SYNC_INTERVAL, [0, 0]),
        (id::VERSION_NUMBER, [2, 0]),
        (id::CLOCK_ACCURACY, [0x21, 0]),
        (id::TRACEABILITY_PROPERTIES, [0x30, 0]),
        (id::TIMESCALE_PROPERTIES, [0x08, 0x20]),
        (id::UNICAST_NEGOTIATION_ENABLE, [1, 0]),
        (id::MASTER_ONLY, [1, 0]),
        (id::DELAY_MECHANISM, [1, 0]),
        (id::LOG_MIN_PDELAY_REQ_INTERVAL, [0, 0]),
        (id::USER_DESCRIPTION, [0, 0]),
    ] {
        assert_eq!(managed_data(id), data, "{id:x}");
    }
    assert_eq!(managed_data(id::UTC_PROPERTIES), [0, 37, 0x04, 0]);
    assert!(managed_data(id::NULL_MANAGEMENT).is_empty());
}

#[test]
fn the_time_is_reported_while_the_clock_is_usable() {
    assert_eq!(PtpTimestamp::parse(&managed_data(id::TIME)), Ok(SENT));
    let (mut port, _) = master();
    let mut out = RecordingOutbox::default();
    let question = question(ManagementAction::Get, id::TIME, &[]);
    port.receive(&arrival(&question), &UNUSABLE, START, &mut out);
    let sent = out.0.remove(0);
    let tlv = sent.message().tlvs().next().unwrap().unwrap();
    let refused = ManagementErrorTlv::from_tlv(&tlv).unwrap().unwrap();
    assert_eq!((refused.id, refused.code), (id::TIME, ManagementErrorId::NotSupported));
}

#[test]
fn nothing_can_be_changed() {
    use ManagementAction::{Acknowledge, Command, Get, Response, Set};
    use ManagementErrorId as Code;

    let (mut port, _) = master();
    for (action, id, expected) in [
        (Set, id::PRIORITY1, (Response, Code::NotSetable)),
        (Set, 0x1234, (Response, Code::NoSuchId)),
        (Command, 0x0005, (Acknowledge, Code::NotSupported)),
        (Get, id::FAULT_LOG, (Response, Code::NotSupported)),
        (Get, 0xc000, (Response, Code::NoSuchId)),
        (Command, 0x2022, (Acknowledge, Code::NoSuchId)),
    ] {
        assert_eq!(refused(&mut port, action, id), expected, "{action:?} {id:x}");
    }
}

#[test]
fn a_manager_off_the_link_gets_no_more_bytes_than_it_sent() {
    let (mut port, _) = master();
    let mut out = RecordingOutbox::default();
    for (data, answers) in [(&[][..], 0), (&[0; 30], 0), (&[0; 32], 1), (&[0; 40], 1)] {
        let question = question(ManagementAction::Get, id::PARENT_DATA_SET, data);
        let stranger = ReceivedPtpMessage { on_link: false, ..arrival(&question) };
        port.receive(&stranger, &GOOD, START, &mut out);
        let sent = out.take();
        assert_eq!(sent.len(), answers, "{}", data.len());
        assert!(sent.iter().all(|sent| sent.bytes.len() <= question.len()));
    }
    assert_eq!(port.counts.refused(PtpRefusal::Amplifying), 2);
}

#[test]
fn an_answer_is_not_answered() {
    let (mut port, _) = master();
    let mut out = RecordingOutbox::default();
    for action in
        [ManagementAction::Response, ManagementAction::Acknowledge, ManagementAction::Reserved(9)]
    {
        let question = question(action, id::PRIORITY1, &[0, 0]);
        port.receive(&arrival(&question), &GOOD, START, &mut out);
    }
    let empty = PtpMessageBody::Management(ManagementHeader {
        target: PortIdentity::ALL,
        starting_hops: 0,
        hops: 0,
        action: ManagementAction::Get,
    });
    port.receive(&arrival(&bytes(&Message::new(header(), empty))), &GOOD, START, &mut out);
    assert_eq!((out.0.len(), port.counts.refused(PtpRefusal::Unwanted)), (0, 3));
    assert_eq!(port.counts.refused(PtpRefusal::Length), 1);
}

#[test]
fn the_longest_texts_fit() {
    let user = "é".repeat(300);
    let clock = ClockSettings { user, ..ClockSettings::new(OWN, PtpProfile::DefaultE2e) };
    let address = vec![1; 400];
    let mut port =
        ClockPort::new(clock, PortSettings { address, ..settings(PtpProfile::DefaultE2e) }, START);
    let sent = answer_to(&mut port, &question(ManagementAction::Get, id::CLOCK_DESCRIPTION, &[]));
    let tlv = sent.message().tlvs().next().unwrap().unwrap();
    let managed = ManagementTlv::from_tlv(&tlv).unwrap().unwrap();
    let description = ClockDescription::parse(managed.data).unwrap();
    assert_eq!((description.user.len(), description.protocol_address.len()), (254, 16));
}
