//! Responses of a port to management messages: data can be read but not changed (IEEE 1588-2019,
//! clause 15).

use horolog_wire::ptp::management::data::{
    ClockDescription, CurrentDataSet, DefaultDataSet, FixedLengthData, PortDataSet,
    TimePropertiesDataSet, emit_text, id,
};
use horolog_wire::ptp::management::{
    MANAGEMENT_ERROR_TLV_LEN, ManagementAction, ManagementErrorId, ManagementErrorTlv,
    ManagementHeader, ManagementTlv,
};
use horolog_wire::ptp::message::MANAGEMENT_LEN;
use horolog_wire::ptp::{
    Message, MessageType, PtpFlags, PtpMessageBody, PtpTimestamp, TimeInterval, VERSION,
};

use crate::address::PtpDestination;
use crate::clock_state::PtpClockProperties;
use crate::port::{ClockPort, Outbox, ReceivedPtpMessage};
use crate::refusal::PtpRefusal;

/// Maximum length of the data, in bytes: a clock description, whose only configured text has at
/// most 256 bytes.
const DATA_LEN_MAX: usize = 512;
const SUFFIX_LEN_MAX: usize = DATA_LEN_MAX + 8;

/// Name of the port's physical layer (clause 15.5.3.1.2.3).
const PHYSICAL_LAYER: &str = "IEEE 802.3";
/// Product description: manufacturer; model; instance.
const PRODUCT: &str = "Horolog;horolog;";
/// Revision data: hardware; firmware; software.
const REVISION: &str = concat!(";;", env!("CARGO_PKG_VERSION"));

/// Data of a management response.
struct ManagementResponseData {
    bytes: [u8; DATA_LEN_MAX],
    length: usize,
}

impl ManagementResponseData {
    /// Creates the data by calling `emit`, which writes them to a buffer and returns their length.
    fn emitted_by(emit: impl FnOnce(&mut [u8]) -> usize) -> Self {
        let mut bytes = [0; DATA_LEN_MAX];
        let length = emit(&mut bytes);
        Self { bytes, length }
    }

    fn from_data(data: &impl FixedLengthData) -> Self {
        Self::emitted_by(|buffer| data.emit(buffer))
    }

    /// Creates data of `value` and one byte of padding.
    fn from_byte(value: u8) -> Self {
        Self::from_pair(value, 0)
    }

    fn from_pair(first: u8, second: u8) -> Self {
        Self::emitted_by(|buffer| {
            buffer[..2].copy_from_slice(&[first, second]);
            2
        })
    }
}

impl ClockPort {
    /// Answers a GET, and refuses requests that would change data. The response is sent to the
    /// group if the request was; otherwise to the requester at its source port.
    pub(crate) fn management(
        &mut self,
        message: &Message<'_>,
        addressee: &ManagementHeader,
        arrival: &ReceivedPtpMessage<'_>,
        clock: &PtpClockProperties,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        if !addressee.target.matches(self.identity) {
            return Err(PtpRefusal::Target);
        }
        if arrival.group && !self.settings.multicast {
            return Err(PtpRefusal::Group);
        }
        let tlv = message.tlvs().flatten().next().ok_or(PtpRefusal::Length)?;
        let managed = ManagementTlv::from_tlv(&tlv).ok_or(PtpRefusal::Unwanted)??;
        let action = match addressee.action {
            ManagementAction::Get | ManagementAction::Set => ManagementAction::Response,
            ManagementAction::Command => ManagementAction::Acknowledge,
            ManagementAction::Response
            | ManagementAction::Acknowledge
            | ManagementAction::Reserved(_) => {
                return Err(PtpRefusal::Unwanted);
            }
        };
        let mut suffix = [0; SUFFIX_LEN_MAX];
        let length = match self.respond(addressee.action, managed.id, clock, out.now_ptp()) {
            Ok(reply) => ManagementTlv { id: managed.id, data: &reply.bytes[..reply.length] }
                .emit(&mut suffix),
            Err(code) => ManagementErrorTlv { code, id: managed.id }.emit(&mut suffix),
        };
        let to = if arrival.group {
            PtpDestination::Group
        } else {
            PtpDestination::Manager(arrival.from, arrival.from_port)
        };
        let answer = Message {
            header: self.header(to, message.header.sequence_id),
            body: PtpMessageBody::Management(ManagementHeader {
                target: message.header.source,
                // The response needs as many hops as the request took (clause 15.3.3).
                starting_hops: addressee.starting_hops.saturating_sub(addressee.hops),
                hops: addressee.starting_hops.saturating_sub(addressee.hops),
                action,
            }),
            suffix: &suffix[..length],
        };
        if answer.len() > message.len() && !arrival.on_link {
            return Err(PtpRefusal::Amplifying);
        }
        let mut buffer = [0; MANAGEMENT_LEN + SUFFIX_LEN_MAX];
        let length = answer.emit(&mut buffer);
        self.counts.count_sent(MessageType::Management as u8);
        out.send(to, false, false, &buffer[..length]);
        Ok(())
    }

    fn respond(
        &self,
        action: ManagementAction,
        requested_id: u16,
        clock: &PtpClockProperties,
        now: PtpTimestamp,
    ) -> Result<ManagementResponseData, ManagementErrorId> {
        match (action, self.requested_data(requested_id, clock, now)) {
            _ if requested_id == id::NULL_MANAGEMENT => {
                Ok(ManagementResponseData::emitted_by(|_| 0))
            }
            _ if !id::is_known(requested_id) => Err(ManagementErrorId::NoSuchId),
            (ManagementAction::Set, _) => Err(ManagementErrorId::NotSetable),
            (ManagementAction::Get, Some(reply)) => Ok(reply),
            _ => Err(ManagementErrorId::NotSupported),
        }
    }

    /// Returns the data with this identifier of the clock or of this port (table 59); `None` if
    /// there are none.
    fn requested_data(
        &self,
        requested_id: u16,
        clock: &PtpClockProperties,
        now: PtpTimestamp,
    ) -> Option<ManagementResponseData> {
        let (own, settings) = (&self.clock, &self.settings);
        let flags = |mask: PtpFlags| clock.time_flags() & mask.0 as u8;
        let traceable = PtpFlags::TIME_TRACEABLE.union(PtpFlags::FREQUENCY_TRACEABLE);
        Some(match requested_id {
            id::CLOCK_DESCRIPTION => self.clock_description(),
            id::USER_DESCRIPTION => {
                ManagementResponseData::emitted_by(|buffer| emit_text(&own.user, buffer))
            }
            id::DEFAULT_DATA_SET => {
                ManagementResponseData::from_data(&self.default_data_set(clock))
            }
            // A grandmaster is zero steps from itself.
            id::CURRENT_DATA_SET => ManagementResponseData::from_data(&CurrentDataSet::default()),
            id::PARENT_DATA_SET => ManagementResponseData::from_data(&self.parent_data_set(clock)),
            id::TIME_PROPERTIES_DATA_SET => {
                ManagementResponseData::from_data(&TimePropertiesDataSet {
                    utc_offset: clock.utc_offset,
                    flags: clock.time_flags(),
                    time_source: clock.time_source,
                })
            }
            id::PORT_DATA_SET => ManagementResponseData::from_data(&self.port_data_set()),
            id::PRIORITY1 => ManagementResponseData::from_byte(own.priority1),
            id::PRIORITY2 => ManagementResponseData::from_byte(own.priority2),
            id::DOMAIN => ManagementResponseData::from_byte(own.domain),
            id::SLAVE_ONLY => ManagementResponseData::from_byte(0),
            id::LOG_ANNOUNCE_INTERVAL => {
                ManagementResponseData::from_byte(settings.log_announce.cast_unsigned())
            }
            id::ANNOUNCE_RECEIPT_TIMEOUT => {
                ManagementResponseData::from_byte(settings.announce_receipt_timeout)
            }
            id::LOG_SYNC_INTERVAL => {
                ManagementResponseData::from_byte(settings.log_sync.cast_unsigned())
            }
            id::VERSION_NUMBER => ManagementResponseData::from_byte(VERSION),
            // A time that may be wrong is not returned.
            id::TIME if clock.usable => ManagementResponseData::from_data(&now),
            id::CLOCK_ACCURACY => ManagementResponseData::from_byte(clock.accuracy),
            id::UTC_PROPERTIES => {
                let leaps =
                    PtpFlags::LEAP_61.union(PtpFlags::LEAP_59).union(PtpFlags::UTC_OFFSET_VALID);
                let (utc_offset, flags) = (clock.utc_offset, flags(leaps));
                ManagementResponseData::from_data(&TimePropertiesDataSet {
                    utc_offset,
                    flags,
                    time_source: 0,
                })
            }
            id::TRACEABILITY_PROPERTIES => ManagementResponseData::from_byte(flags(traceable)),
            id::TIMESCALE_PROPERTIES => {
                ManagementResponseData::from_pair(flags(PtpFlags::PTP_TIMESCALE), clock.time_source)
            }
            id::UNICAST_NEGOTIATION_ENABLE => {
                ManagementResponseData::from_byte(u8::from(settings.unicast.grants_max > 0))
            }
            id::MASTER_ONLY => ManagementResponseData::from_byte(1),
            id::DELAY_MECHANISM => ManagementResponseData::from_byte(settings.delay.number()),
            id::LOG_MIN_PDELAY_REQ_INTERVAL => {
                ManagementResponseData::from_byte(settings.log_min_delay_req.cast_unsigned())
            }
            _ => return None,
        })
    }

    fn clock_description(&self) -> ManagementResponseData {
        let description = ClockDescription {
            kinds: ClockDescription::ORDINARY,
            physical_layer: PHYSICAL_LAYER,
            physical_address: &self.settings.mac.0,
            protocol: self.settings.transport.protocol(),
            protocol_address: &self.settings.address,
            manufacturer: [0; 3],
            product: PRODUCT,
            revision: REVISION,
            user: &self.clock.user,
            profile: self.clock.profile.identity(),
        };
        ManagementResponseData::emitted_by(|buffer| description.emit(buffer))
    }

    fn default_data_set(&self, clock: &PtpClockProperties) -> DefaultDataSet {
        DefaultDataSet {
            two_step: !self.settings.one_step,
            slave_only: false,
            ports: self.clock.ports,
            clock: clock.grandmaster(&self.clock),
            domain: self.clock.domain,
        }
    }

    fn port_data_set(&self) -> PortDataSet {
        PortDataSet {
            port: self.identity,
            state: self.state as u8,
            log_min_delay_req: self.settings.log_min_delay_req,
            // A master does not measure the peer delay.
            peer_delay: TimeInterval::default(),
            log_announce: self.settings.log_announce,
            announce_receipt_timeout: self.settings.announce_receipt_timeout,
            log_sync: self.settings.log_sync,
            delay_mechanism: self.settings.delay.number(),
            log_min_pdelay_req: self.settings.log_min_delay_req,
            version: VERSION,
        }
    }
}

const _: () = assert!(MANAGEMENT_ERROR_TLV_LEN <= SUFFIX_LEN_MAX);
