"""Architectures that other tools than PyTorch export: of scikit-learn, LightGBM, XGBoost, JAX, Keras and Paddle.

Estimators are fitted on random rows whose labels depend on all columns; networks keep the weights they begin with.
"""

from __future__ import annotations

from typing import Any

from .rows import Architecture, Input, Library


def _table(library: Library, model: str, rows: int = 1, columns: int = 12, /, **configuration: Any) -> Architecture:
    features = Input("features", (rows, columns), free={0: "rows"})
    return Architecture(library, model, configuration, (features,))


def _network(library: Library, model: str, *shape: int) -> Architecture:
    """A network of `tool_side/`, for one input of that shape."""
    return Architecture(library, model, {}, (Input("x", shape, free={0: "batch"}),))


def _lookup(library: Library, model: str) -> Architecture:
    return Architecture(library, model, {}, (Input("x", (1, 12), "integers", 50, free={0: "batch"}),))


OTHER_TOOLS: tuple[Architecture, ...] = (
    _table("sklearn", "linear_model.LogisticRegression", 100),
    _table("sklearn", "linear_model.Ridge"),
    _table("sklearn", "linear_model.SGDClassifier"),
    _table("sklearn", "neural_network.MLPClassifier", hidden_layer_sizes=[32, 16], max_iter=50),
    _table("sklearn", "neural_network.MLPRegressor", 100, hidden_layer_sizes=[32], max_iter=50),
    _table("sklearn", "svm.SVC", 100, probability=True),
    _table("sklearn", "svm.SVR"),
    _table("sklearn", "tree.DecisionTreeClassifier", 10, max_depth=6),
    _table("sklearn", "ensemble.RandomForestClassifier", 100, n_estimators=100),
    _table("sklearn", "ensemble.RandomForestRegressor", 1, n_estimators=100),
    _table("sklearn", "ensemble.ExtraTreesRegressor", 1000, n_estimators=50, max_depth=8),
    _table("sklearn", "ensemble.GradientBoostingRegressor", 100),
    _table("sklearn", "ensemble.AdaBoostRegressor", 10, n_estimators=10),
    _table("sklearn", "naive_bayes.GaussianNB", 100),
    _table("sklearn", "neighbors.KNeighborsClassifier", 10),
    _table("sklearn", "neighbors.KNeighborsRegressor", 100),
    _table("sklearn", "discriminant_analysis.LinearDiscriminantAnalysis"),
    _table("sklearn", "gaussian_process.GaussianProcessRegressor", 10),
    _table("sklearn", "decomposition.PCA", 100, n_components=6),
    _table("sklearn", "preprocessing.PolynomialFeatures", 100),
    _table("sklearn", "preprocessing.QuantileTransformer", 10, n_quantiles=50),
    _table("lightgbm", "LGBMClassifier", 1000, 24, n_estimators=50),
    _table("lightgbm", "LGBMRegressor", 100, n_estimators=100),
    _table("xgboost", "XGBClassifier", 1, n_estimators=100),
    _table("xgboost", "XGBRegressor", 1000, n_estimators=100),
    _table("xgboost", "XGBRFClassifier", 100, n_estimators=50),
    _network("jax", "Mlp", 1, 16),
    _network("jax", "Convolutional", 1, 32, 32, 3),
    _network("jax", "Attention", 1, 16, 32),
    _network("jax", "Mixer", 1, 16, 24),
    _network("jax", "Residual", 1, 16, 16, 8),
    _network("jax", "Recurrence", 1, 12, 8),
    _network("keras", "Mlp", 1, 16),
    _network("keras", "Convolutional", 1, 32, 32, 3),
    _network("keras", "Separable", 1, 32, 32, 3),
    _network("keras", "Lstm", 1, 12, 8),
    _network("keras", "BidirectionalGru", 1, 12, 8),
    _network("keras", "Attention", 1, 16, 32),
    _network("keras", "UNet", 1, 32, 32, 3),
    _lookup("keras", "TextConvolution"),
    _network("paddle", "Mlp", 1, 16),
    _network("paddle", "Convolutional", 1, 3, 32, 32),
    _network("paddle", "Attention", 1, 16, 32),
    _network("paddle", "Lstm", 1, 12, 8),
    _network("paddle", "Upsampling", 1, 3, 16, 16),
)  # fmt: skip
