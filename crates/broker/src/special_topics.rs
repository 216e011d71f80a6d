//! Topics with a meaning for the broker: `$exclusive/`, `$delayed/` and `$cache/`.

use mqtt::Violation;

/// Returns the filter without a `$share/` or `$exclusive/` prefix.
pub(crate) fn strip_filter_prefix(filter: &str) -> Result<&str, Violation> {
    Ok(mqtt::SharedFilter::parse(filter)?.map_or(strip_exclusive(filter), |share| share.filter))
}

/// Prefix of the filter of an exclusive subscription.
pub(crate) const EXCLUSIVE: &str = "$exclusive/";

/// Returns the filter without the prefix `$exclusive/`.
pub(crate) fn strip_exclusive(filter: &str) -> &str {
    filter.strip_prefix(EXCLUSIVE).unwrap_or(filter)
}

/// Prefix of the name of a cache in the topic of a request.
pub(crate) const CACHE_PREFIX: &str = "$cache/";

/// Prefix of the topic of a delayed message: see `delayed`.
pub(crate) const DELAYED_PREFIX: &str = "$delayed/";
