//! PTP messages have 16-bit sequence IDs, a lane's requests longer sequence numbers: maps a
//! sequence ID to one of a client's requests. Pure.

/// Returns the number of requests of the lane between the one with this sequence number and the
/// latest one before it, or itself, of the same of `count` clients whose number ends in
/// `sequence_id`. Numbers restart at `wrap`, a multiple of `count` above 2^17; sequence IDs repeat
/// after 2^16 requests of the lane, so no older one is meant.
pub(super) fn requests_since(
    sequence: u64,
    sequence_id: u16,
    (count, wrap): (u64, u64),
) -> Option<u64> {
    const NUMBERS: u64 = 1 << 16;
    let id = u64::from(sequence_id);
    let within = (sequence + NUMBERS - id) % NUMBERS;
    if within <= sequence && within.is_multiple_of(count) {
        return Some(within);
    }
    // Before the start the numbers continue from the end.
    let beyond = (sequence + wrap + NUMBERS - id) % NUMBERS;
    [beyond, beyond + NUMBERS]
        .into_iter()
        .find(|back| *back > sequence && *back <= NUMBERS && back.is_multiple_of(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference implementation of [`requests_since`] that steps through the requests.
    fn stepping(sequence: u64, sequence_id: u16, (count, wrap): (u64, u64)) -> Option<u64> {
        let mut number = sequence;
        (0..=(1 << 16) / count).find_map(|step| {
            let found = number as u16 == sequence_id;
            number = if number < count { number + wrap - count } else { number - count };
            found.then_some(step * count)
        })
    }

    proptest! {
        #[test]
        fn a_number_is_found_where_stepping_finds_it(
            count in prop_oneof![1_u64..4, 1_u64..70_000],
            room in (1_u64 << 18)..1 << 27,
            place in 0_u64..200_000,
            ago in 0_u64..200_000,
            other: u16,
        ) {
            // Numbers of a lane go further than those of messages.
            let wrap = room / count * count;
            let sequence = place;
            let earlier = (sequence + wrap - ago * count % wrap) % wrap;
            for id in [earlier as u16, other] {
                let stepped = stepping(sequence, id, (count, wrap));
                prop_assert_eq!(requests_since(sequence, id, (count, wrap)), stepped);
            }
        }
    }
}
