//! A sink whose batches are files of Parquet, one each. Such a file ends with what tells where its
//! columns are, so nothing can be added to it later; it gets its name once it is whole.

use super::ahead::Ahead;
use super::far::{Setback, What};
use super::files::write_by_path;
use super::message::{Message, Value};
use super::rotation::{self, Series};
use super::settings::FileSettings;
use super::template::{Template, text_of};
use super::worker::Blocking;
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

/// What a column's values are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Bool,
    Bytes,
    Double,
    Int64,
    #[default]
    Text,
    /// Milliseconds since 1970.
    Timestamp,
}

pub(super) const TYPES: &[(&str, ColumnType)] = &[
    ("boolean", ColumnType::Bool),
    ("bytes", ColumnType::Bytes),
    ("double", ColumnType::Double),
    ("int64", ColumnType::Int64),
    ("string", ColumnType::Text),
    ("timestamp_ms", ColumnType::Timestamp),
];

#[derive(Clone)]
pub(super) struct Parquet {
    settings: Arc<FileSettings>,
    properties: WriterPropertiesPtr,
    ahead: Ahead,
}

/// Values of one column, and of each row whether it has one.
enum Column {
    Bool(Cells<bool>),
    Bytes(Cells<ByteArray>),
    Double(Cells<f64>),
    Int64(Cells<i64>),
}

#[derive(Default)]
struct Cells<T> {
    values: Vec<T>,
    present: Vec<i16>,
}

/// `NAME=TYPE`, where there is such a column.
pub(super) fn parse_type(text: &str) -> Result<(String, ColumnType), String> {
    let known = || TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = text.split_once('=').and_then(|(name, wanted)| {
        let (_, found) = TYPES.iter().find(|(known, _)| *known == wanted.trim())?;
        Some((name.trim().to_string(), *found))
    });
    found.ok_or_else(|| format!("{text:?} is no type of a column, use NAME= and {}", known()))
}

impl Parquet {
    pub(super) fn new(settings: &FileSettings) -> Parquet {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let (settings, properties) = (Arc::new(settings.clone()), Arc::new(properties.build()));
        Parquet { settings, properties, ahead: Ahead::default() }
    }

    fn columns(&self) -> impl Iterator<Item = (&str, &Template, ColumnType)> {
        let types = &self.settings.types;
        self.settings.columns.each().map(|(name, template)| {
            let typed = types.iter().find(|(known, _)| known == name);
            (name, template, typed.map_or(ColumnType::Text, |(_, found)| *found))
        })
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let fields = self.columns().map(|(name, _, kind)| kind.field(name));
        let fields = fields.collect::<Result<Vec<TypePtr>, _>>()?;
        Type::group_type_builder("message").with_fields(fields).build().map(Arc::new)
    }

    fn read(&self, messages: &[&Message]) -> Result<Vec<Column>, String> {
        let column = |(name, template, kind): (&str, &Template, ColumnType)| {
            let mut column = Column::new(kind, messages.len());
            for message in messages {
                column
                    .push(kind, message, template)
                    .map_err(|value| format!("column {name}: {value:?} is no {}", kind.name()))?;
            }
            Ok(column)
        };
        self.columns().map(column).collect()
    }

    /// Under another name until it is whole.
    fn write(&self, path: &Path, columns: &[Column]) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let series = Series::of_parquet(path);
        let unfinished = series.unfinished();
        let file = File::create(&unfinished)?;
        self.fill(&file, columns).map_err(io::Error::other)?;
        if self.settings.sync {
            file.sync_all()?;
        }
        fs::rename(&unfinished, series.free_name()?)?;
        series.remove_oldest(self.settings.keep)?;
        if self.settings.sync { rotation::sync_folder(path) } else { Ok(()) }
    }

    fn fill(&self, file: &File, columns: &[Column]) -> Result<(), ParquetError> {
        let mut writer = SerializedFileWriter::new(file, self.schema()?, self.properties.clone())?;
        let mut rows = writer.next_row_group()?;
        for column in columns {
            let Some(mut to) = rows.next_column()? else { break };
            match column {
                Column::Bool(cells) => cells.write::<BoolType>(&mut to)?,
                Column::Bytes(cells) => cells.write::<ByteArrayType>(&mut to)?,
                Column::Double(cells) => cells.write::<DoubleType>(&mut to)?,
                Column::Int64(cells) => cells.write::<Int64Type>(&mut to)?,
            }
            to.close()?;
        }
        rows.close()?;
        writer.close().map(drop)
    }
}

impl ColumnType {
    fn name(self) -> &'static str {
        TYPES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    fn field(self, name: &str) -> Result<TypePtr, ParquetError> {
        let (physical, logical, converted) = match self {
            ColumnType::Bool => (Physical::BOOLEAN, None, ConvertedType::NONE),
            ColumnType::Bytes => (Physical::BYTE_ARRAY, None, ConvertedType::NONE),
            ColumnType::Double => (Physical::DOUBLE, None, ConvertedType::NONE),
            ColumnType::Int64 => (Physical::INT64, None, ConvertedType::NONE),
            ColumnType::Text => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), ConvertedType::UTF8)
            }
            ColumnType::Timestamp => {
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

impl Column {
    fn new(kind: ColumnType, rows: usize) -> Column {
        match kind {
            ColumnType::Bool => Column::Bool(Cells::new(rows)),
            ColumnType::Bytes | ColumnType::Text => Column::Bytes(Cells::new(rows)),
            ColumnType::Double => Column::Double(Cells::new(rows)),
            ColumnType::Int64 | ColumnType::Timestamp => Column::Int64(Cells::new(rows)),
        }
    }

    /// Or what the value is that does not fit.
    fn push(
        &mut self,
        kind: ColumnType,
        message: &Message,
        template: &Template,
    ) -> Result<(), String> {
        let value = template.value(message);
        let wrong = || text_of(&value).into_owned();
        match self {
            _ if value == Value::Nothing => self.skip(),
            Column::Bool(cells) => cells.push(truth(&value).ok_or_else(wrong)?),
            Column::Double(cells) => cells.push(float(&value).ok_or_else(wrong)?),
            Column::Int64(cells) => cells.push(integer(&value).ok_or_else(wrong)?),
            Column::Bytes(cells) => cells.push(match value {
                Value::Bytes(bytes) if kind == ColumnType::Bytes => bytes.into_owned().into(),
                value => text_of(&value).into_owned().into_bytes().into(),
            }),
        }
        Ok(())
    }

    fn skip(&mut self) {
        match self {
            Column::Bool(cells) => cells.present.push(0),
            Column::Bytes(cells) => cells.present.push(0),
            Column::Double(cells) => cells.present.push(0),
            Column::Int64(cells) => cells.present.push(0),
        }
    }
}

impl<T> Cells<T> {
    fn new(rows: usize) -> Cells<T> {
        Cells { values: Vec::with_capacity(rows), present: Vec::with_capacity(rows) }
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

fn truth(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::Bool(is) => Some(*is),
        value => text_of(value).parse().ok(),
    }
}

fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Json(json) => json.as_f64(),
        value => text_of(value).parse().ok(),
    }
}

/// 21.0 is one.
fn integer(value: &Value<'_>) -> Option<i64> {
    let whole = |number: f64| {
        let is_whole = number.fract() == 0.0 && number.abs() < (1_u64 << 53) as f64;
        is_whole.then_some(number as i64)
    };
    match value {
        Value::Json(json) => json.as_i64().or_else(|| json.as_f64().and_then(whole)),
        value => text_of(value).parse().ok(),
    }
}

impl Blocking for Parquet {
    const NAME: &'static str = "sink-parquet";

    /// What a process left unfinished goes with the next batch, which has the same name until then.
    fn open(&mut self) -> Result<(), String> {
        self.schema().map_err(|error| error.to_string())?;
        match self.settings.path.only_text() {
            Some(path) => {
                let folder = Path::new(&path).parent().map(fs::create_dir_all);
                folder.unwrap_or(Ok(())).map_err(|error| format!("{path}: {error}"))
            }
            None => Ok(()),
        }
    }

    /// Of a file where something does not fit nothing is written.
    fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        let sent = self.ahead.missing(batch);
        let said = write_by_path(&self.settings.path, &sent, |path, messages| {
            let columns = self.read(messages).map_err(|why| (0, What::Refused(why)))?;
            let down = |error| What::down(format!("{}: {error}", path.display()));
            self.write(path, &columns).map_err(|error| (0, down(error)))
        });
        self.ahead.settle(batch, &sent, said)
    }
}

/// Whether there are columns, and each type is of one of them.
pub(super) fn check_types(files: &FileSettings) -> Result<(), String> {
    let is_known = |name: &str| files.columns.each().any(|(known, _)| known == name);
    match files.types.iter().find(|(name, _)| !is_known(name)) {
        _ if files.columns.is_empty() => Err("file.format = \"parquet\" needs columns".to_string()),
        Some((name, _)) => Err(format!("file.types: there is no column {name}")),
        None => Ok(()),
    }
}
