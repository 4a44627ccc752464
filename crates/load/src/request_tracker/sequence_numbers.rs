//! Mapping of the 16-bit sequence IDs of PTP messages to the longer sequence numbers of a lane's
//! requests. Does no I/O.

/// Returns the distance, in requests of the lane, from the request with number `sequence` back to
/// the latest request of the same client whose number ends in the 16 bits of `sequence_id`; 0 if it
/// is that request itself. The `count` clients send in turn, so the distance is a multiple of
/// `count`. Numbers restart at `sequence_end`, a multiple of `count` above 2^17. `None` if the
/// client sent no such request among the last 2^16.
pub(super) fn requests_since(
    sequence: u64,
    sequence_id: u16,
    (count, sequence_end): (u64, u64),
) -> Option<u64> {
    const NUMBERS: u64 = 1 << 16;
    let id = u64::from(sequence_id);
    let age = (sequence + NUMBERS - id) % NUMBERS;
    if age <= sequence && age.is_multiple_of(count) {
        return Some(age);
    }
    // Before the start the numbers continue from the end.
    let wrapped_age = (sequence + sequence_end + NUMBERS - id) % NUMBERS;
    [wrapped_age, wrapped_age + NUMBERS]
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
