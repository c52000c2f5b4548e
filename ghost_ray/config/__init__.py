"""The settings of every job: one frozen, validated object each, the same from YAML, the command line and Python."""

from ghost_ray.config.building import build, is_nested, load_yaml, parse_yaml
from ghost_ray.config.fields import Catalogue, Metavar, Place, PlaceUse, Positional, places_of
from ghost_ray.config.settings import (
    AuditConfig,
    DemoConfig,
    DeviceConfig,
    EvaluateConfig,
    ExtractConfig,
    FitConfig,
    ImportConfig,
    JobConfig,
    NetworkConfig,
    RayJobConfig,
    ReportConfig,
    ScoreConfig,
    SourceConfig,
)

__all__ = [
    "AuditConfig",
    "Catalogue",
    "DemoConfig",
    "DeviceConfig",
    "EvaluateConfig",
    "ExtractConfig",
    "FitConfig",
    "ImportConfig",
    "JobConfig",
    "Metavar",
    "NetworkConfig",
    "Place",
    "PlaceUse",
    "Positional",
    "RayJobConfig",
    "ReportConfig",
    "ScoreConfig",
    "SourceConfig",
    "build",
    "is_nested",
    "load_yaml",
    "parse_yaml",
    "places_of",
]
