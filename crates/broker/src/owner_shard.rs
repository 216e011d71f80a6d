//! The shard which owns a name: a client id, a shared group, the topic of a retained message.

use crate::ids::ShardId;
use std::hash::Hasher;

/// Hash of names to shards in one process. The store also holds the previous process'
/// `ShardHasher`, to attribute messages in the cross-shard log to the shards of that process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardHasher {
    /// Chosen at random for every process, since clients choose the names.
    pub(crate) key: u64,
    pub(crate) shards: u8,
}

impl ShardHasher {
    /// Returns the owner of a name. docs/store-format.md specifies the hash, since another version
    /// of the program may read the store.
    pub(crate) fn owner_of(self, name: &str) -> ShardId {
        #[expect(deprecated, reason = "its successor does not say which hash it is")]
        let mut hasher = std::hash::SipHasher::new_with_keys(self.key, 0);
        hasher.write(name.as_bytes());
        ShardId((hasher.finish() % u64::from(self.shards)) as u8)
    }
}

/// Hashes a text, with the same result in every process and version.
pub(crate) fn stable_hash(text: &str) -> u64 {
    #[expect(deprecated, reason = "its successor does not say which hash it is")]
    let mut hasher = std::hash::SipHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SipHash-2-4 of the bytes 0 to 14 under the key 00 01 .. 0f, as its authors give it.
    #[test]
    fn the_hash_is_the_one_that_the_format_names() {
        #[expect(deprecated, reason = "its successor does not say which hash it is")]
        let mut hasher =
            std::hash::SipHasher::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        hasher.write(&(0..15).collect::<Vec<u8>>());
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn names_have_the_same_home_under_the_same_key_only() {
        let (one, other) = (ShardHasher { key: 1, shards: 64 }, ShardHasher { key: 2, shards: 64 });
        let names: Vec<String> = (0..100).map(|at| format!("name {at}")).collect();
        let differ = names.iter().filter(|name| one.owner_of(name) != other.owner_of(name)).count();
        assert!(differ > 80, "only {differ} moved");
        assert!(names.iter().all(|name| one.owner_of(name) == one.owner_of(name)));
    }
}
