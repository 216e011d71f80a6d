//! A sink into Parquet files, one for each batch. A Parquet file ends with an index of its columns,
//! so it cannot grow; it gets its final name when it is complete.

use super::delivered_ahead::DeliveredAhead;
use super::destination::{BatchError, SinkError};
use super::files::write_by_path;
use super::message::{MessageValue, SinkMessage};
use super::rotation::{self, FileSeries};
use super::settings::FileSinkSettings;
use super::template::{SinkTemplate, text_of};
use super::worker::BlockingSink;
use parquet::basic::{
    Compression, ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical,
};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Type of a Parquet column, from the option `file.types`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ParquetColumnType {
    Bool,
    Bytes,
    Double,
    Int64,
    #[default]
    Text,
    /// Milliseconds since 1970.
    Timestamp,
}

pub(super) const TYPES: &[(&str, ParquetColumnType)] = &[
    ("boolean", ParquetColumnType::Bool),
    ("bytes", ParquetColumnType::Bytes),
    ("double", ParquetColumnType::Double),
    ("int64", ParquetColumnType::Int64),
    ("string", ParquetColumnType::Text),
    ("timestamp_ms", ParquetColumnType::Timestamp),
];

/// The Parquet sink, on the thread of a `SinkWorker`.
#[derive(Clone)]
pub(super) struct ParquetSink {
    settings: Arc<FileSinkSettings>,
    properties: WriterPropertiesPtr,
    ahead: DeliveredAhead,
}

/// Values of one column.
enum ParquetColumn {
    Bool(ColumnCells<bool>),
    Bytes(ColumnCells<ByteArray>),
    Double(ColumnCells<f64>),
    Int64(ColumnCells<i64>),
}

/// The values of a column, and for each row 1 if it has a value, or 0.
#[derive(Default)]
struct ColumnCells<T> {
    values: Vec<T>,
    present: Vec<i16>,
}

/// Parses `NAME=TYPE`.
pub(super) fn parse_type(text: &str) -> Result<(String, ParquetColumnType), String> {
    let known = || TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = text.split_once('=').and_then(|(name, wanted)| {
        let (_, found) = TYPES.iter().find(|(known, _)| *known == wanted.trim())?;
        Some((name.trim().to_string(), *found))
    });
    found.ok_or_else(|| format!("{text:?} is not a type of a column, use NAME= and {}", known()))
}

impl ParquetSink {
    pub(super) fn new(settings: &FileSinkSettings) -> ParquetSink {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let (settings, properties) = (Arc::new(settings.clone()), Arc::new(properties.build()));
        ParquetSink { settings, properties, ahead: DeliveredAhead::default() }
    }

    fn columns(&self) -> impl Iterator<Item = (&str, &SinkTemplate, ParquetColumnType)> {
        let types = &self.settings.types;
        self.settings.columns.iter().map(|(name, template)| {
            let typed = types.iter().find(|(known, _)| known == name);
            (name, template, typed.map_or(ParquetColumnType::Text, |(_, found)| *found))
        })
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let fields = self.columns().map(|(name, _, kind)| kind.field(name));
        let fields = fields.collect::<Result<Vec<TypePtr>, _>>()?;
        Type::group_type_builder("message").with_fields(fields).build().map(Arc::new)
    }

    fn fill_columns(&self, messages: &[&SinkMessage]) -> Result<Vec<ParquetColumn>, String> {
        let column = |(name, template, kind): (&str, &SinkTemplate, ParquetColumnType)| {
            let mut column = ParquetColumn::new(kind, messages.len());
            for message in messages {
                column.push(kind, message, template).map_err(|value| {
                    format!("column {name}: {value:?} is not of type {}", kind.name())
                })?;
            }
            Ok(column)
        };
        self.columns().map(column).collect()
    }

    /// Writes a file under a temporary name, renames it when it is complete, and removes the oldest
    /// files above `keep`.
    fn write(&self, path: &Path, columns: &[ParquetColumn]) -> io::Result<()> {
        rotation::make_folder_of(path)?;
        let series = FileSeries::of_parquet(path);
        let unfinished = series.unfinished();
        let file = File::create(&unfinished)?;
        self.write_columns(&file, columns).map_err(io::Error::other)?;
        if self.settings.sync {
            file.sync_all()?;
        }
        fs::rename(&unfinished, series.free_name()?)?;
        series.remove_oldest(self.settings.keep)?;
        if self.settings.sync { rotation::sync_folder(path) } else { Ok(()) }
    }

    fn write_columns(&self, file: &File, columns: &[ParquetColumn]) -> Result<(), ParquetError> {
        let mut writer = SerializedFileWriter::new(file, self.schema()?, self.properties.clone())?;
        let mut rows = writer.next_row_group()?;
        for column in columns {
            let Some(mut to) = rows.next_column()? else { break };
            match column {
                ParquetColumn::Bool(cells) => cells.write::<BoolType>(&mut to)?,
                ParquetColumn::Bytes(cells) => cells.write::<ByteArrayType>(&mut to)?,
                ParquetColumn::Double(cells) => cells.write::<DoubleType>(&mut to)?,
                ParquetColumn::Int64(cells) => cells.write::<Int64Type>(&mut to)?,
            }
            to.close()?;
        }
        rows.close()?;
        writer.close().map(drop)
    }
}

impl ParquetColumnType {
    fn name(self) -> &'static str {
        TYPES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    fn field(self, name: &str) -> Result<TypePtr, ParquetError> {
        let (physical, logical, converted) = match self {
            ParquetColumnType::Bool => (Physical::BOOLEAN, None, ConvertedType::NONE),
            ParquetColumnType::Bytes => (Physical::BYTE_ARRAY, None, ConvertedType::NONE),
            ParquetColumnType::Double => (Physical::DOUBLE, None, ConvertedType::NONE),
            ParquetColumnType::Int64 => (Physical::INT64, None, ConvertedType::NONE),
            ParquetColumnType::Text => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), ConvertedType::UTF8)
            }
            ParquetColumnType::Timestamp => {
                let logical = LogicalType::timestamp(true, TimeUnit::MILLIS);
                (Physical::INT64, Some(logical), ConvertedType::TIMESTAMP_MILLIS)
            }
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .with_converted_type(converted)
            .build()
            .map(Arc::new)
    }
}

impl ParquetColumn {
    fn new(kind: ParquetColumnType, rows: usize) -> ParquetColumn {
        match kind {
            ParquetColumnType::Bool => ParquetColumn::Bool(ColumnCells::new(rows)),
            ParquetColumnType::Bytes | ParquetColumnType::Text => {
                ParquetColumn::Bytes(ColumnCells::new(rows))
            }
            ParquetColumnType::Double => ParquetColumn::Double(ColumnCells::new(rows)),
            ParquetColumnType::Int64 | ParquetColumnType::Timestamp => {
                ParquetColumn::Int64(ColumnCells::new(rows))
            }
        }
    }

    /// Adds the value of a row. The error is the text of a value which does not fit the column's
    /// type.
    fn push(
        &mut self,
        kind: ParquetColumnType,
        message: &SinkMessage,
        template: &SinkTemplate,
    ) -> Result<(), String> {
        let value = template.value(message);
        let wrong = || text_of(&value).into_owned();
        match self {
            _ if value == MessageValue::Nothing => self.skip(),
            ParquetColumn::Bool(cells) => cells.push(as_bool(&value).ok_or_else(wrong)?),
            ParquetColumn::Double(cells) => cells.push(as_f64(&value).ok_or_else(wrong)?),
            ParquetColumn::Int64(cells) => cells.push(as_i64(&value).ok_or_else(wrong)?),
            ParquetColumn::Bytes(cells) => cells.push(match value {
                MessageValue::Bytes(bytes) if kind == ParquetColumnType::Bytes => {
                    bytes.into_owned().into()
                }
                value => text_of(&value).into_owned().into_bytes().into(),
            }),
        }
        Ok(())
    }

    fn skip(&mut self) {
        match self {
            ParquetColumn::Bool(cells) => cells.present.push(0),
            ParquetColumn::Bytes(cells) => cells.present.push(0),
            ParquetColumn::Double(cells) => cells.present.push(0),
            ParquetColumn::Int64(cells) => cells.present.push(0),
        }
    }
}

impl<T> ColumnCells<T> {
    fn new(rows: usize) -> ColumnCells<T> {
        ColumnCells { values: Vec::with_capacity(rows), present: Vec::with_capacity(rows) }
    }

    fn push(&mut self, value: T) {
        self.values.push(value);
        self.present.push(1);
    }

    fn write<D: DataType<T = T>>(
        &self,
        to: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), ParquetError> {
        to.typed::<D>().write_batch(&self.values, Some(&self.present), None).map(drop)
    }
}

fn as_bool(value: &MessageValue<'_>) -> Option<bool> {
    match value {
        MessageValue::Bool(is) => Some(*is),
        value => text_of(value).parse().ok(),
    }
}

fn as_f64(value: &MessageValue<'_>) -> Option<f64> {
    match value {
        MessageValue::Json(json) => json.as_f64(),
        value => text_of(value).parse().ok(),
    }
}

/// Returns an integer; 21.0 counts as 21.
fn as_i64(value: &MessageValue<'_>) -> Option<i64> {
    let whole = |number: f64| {
        let is_whole = number.fract() == 0.0 && number.abs() < (1_u64 << 53) as f64;
        is_whole.then_some(number as i64)
    };
    match value {
        MessageValue::Json(json) => json.as_i64().or_else(|| json.as_f64().and_then(whole)),
        value => text_of(value).parse().ok(),
    }
}

impl BlockingSink for ParquetSink {
    const NAME: &'static str = "sink-parquet";

    /// Checks the columns and creates the folder. A temporary file of an earlier process is
    /// overwritten by the next batch.
    fn open(&mut self) -> Result<(), String> {
        self.schema().map_err(|error| error.to_string())?;
        match self.settings.path.only_text() {
            Some(path) => {
                let path = Path::new(&path);
                rotation::make_folder_of(path)
                    .map_err(|error| rotation::describe_file_error(path, &error))
            }
            None => Ok(()),
        }
    }

    /// Writes a batch. A file with a value of a wrong type is not written at all.
    fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        let sent = self.ahead.undelivered(batch);
        let said = write_by_path(&self.settings.path, &sent, |path, messages| {
            let columns =
                self.fill_columns(messages).map_err(|why| (0, SinkError::Rejected(why)))?;
            self.write(path, &columns).map_err(|error| {
                (0, SinkError::transient(rotation::describe_file_error(path, &error)))
            })
        });
        self.ahead.record_results(batch, &sent, said)
    }
}

/// Checks that there are columns and that each type belongs to one of them.
pub(super) fn check_types(files: &FileSinkSettings) -> Result<(), String> {
    let is_known = |name: &str| files.columns.iter().any(|(known, _)| known == name);
    match files.types.iter().find(|(name, _)| !is_known(name)) {
        _ if files.columns.is_empty() => Err("file.format = \"parquet\" needs columns".to_string()),
        Some((name, _)) => Err(format!("file.types: no column is named {name}")),
        None => Ok(()),
    }
}
