//! Broker options by key, as a transcript's header gives them.

use broker::BrokerOptions;
use broker_options::BrokerOptionTables;
use config::row::OptionRow;
use config::value::OptionValue;

/// Sets one option by the key of its row. A number may lie outside of the row's range: transcripts
/// reach a bound with few messages.
pub fn set(options: &mut BrokerOptions, key: &str, value: &str) -> Result<(), String> {
    let wrong = || format!("no option {key}={value}");
    let number = value.parse::<u64>();
    match key {
        // Options of what answers for the broker: the simulator plays that part.
        "asks_kept_ms" => {
            options.authz.get_or_insert_default().cache_ms = number.map_err(|_| wrong())? as u32;
        }
        "auth.timeout_ms" => options.verdict_timeout_ms = number.map_err(|_| wrong())? as u32,
        _ => {
            let mut rows = BrokerOptionTables::<BrokerOptions>::rows();
            let row: &OptionRow<_> = rows.find(|row| row.key == key).ok_or_else(wrong)?;
            let is_number = matches!(row.default_value(), OptionValue::Number(_));
            let value = match number {
                Ok(number) if is_number => OptionValue::Number(number),
                _ => row.kind.read_text(value).map_err(|why| format!("{}: {why}", wrong()))?,
            };
            (row.set)(options, &value);
        }
    }
    Ok(())
}
