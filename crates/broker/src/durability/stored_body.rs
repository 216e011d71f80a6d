//! The message of a queue record in the store, and how much of a queue is read at a time.

use crate::durability::records::RecordBody;
use crate::interface::store_access::{RecordSpace, StoreReadError, StoreReader, number_key};
use crate::message::Message;

/// Largest number of messages of a queue read at a time, bounded by [`READ_BYTES`] too.
pub(crate) const READ_MESSAGES: usize = 1024;
pub(crate) const READ_BYTES: usize = 1024 * 1024;
/// Number of waiting messages below which more are read.
pub(crate) const LOW_WATER: usize = 256;

/// Returns the message of a queue record; `None` for a released record or a removed body.
pub(crate) fn read_body(
    body: RecordBody<'_>,
    stored: &dyn StoreReader,
) -> Result<Option<Message>, StoreReadError> {
    let read = |bytes: &[u8]| Message::read(bytes).map(Some).ok_or(StoreReadError);
    match body {
        RecordBody::None => Ok(None),
        RecordBody::Inline(bytes) => read(bytes),
        RecordBody::Shared(number) => {
            let bytes = stored.get(RecordSpace::Messages, &number_key(number))?;
            bytes.map_or(Ok(None), |bytes| read(&bytes))
        }
    }
}
